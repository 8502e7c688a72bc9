"""Tests the client against a real socket, whose path is the only argument."""

import os
import socket
import sys
import tempfile
import threading

from polder_writers import Refused, Writers, WritersError


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def main(path):
    with Writers(path) as writers:
        token = writers.begin(["python:1", "with blank", "preis/€"])
        assert writers.end(token) is True
        assert writers.end(token) is False, "it is ended already"
        assert writers.abort(writers.begin([b"bytes"])) is True
        writers.invalidate(["python:1"])
        with writers.update(["python:2"]) as inner:
            pass
        assert writers.end(inner) is False
        raises(ZeroDivisionError, lambda: fail_within(writers))
        # A token holds over connections.
        token = writers.begin(["python:3"])
        writers.close()
        assert writers.end(token) is True
        gate(path, writers)
        assert raises(Refused, lambda: writers.begin([])).code == "malformed"
        assert raises(Refused, lambda: writers.begin([""])).code == "malformed"
        assert raises(Refused, lambda: writers.end("0-0-0-0")).code == "malformed"
        raises(ValueError, lambda: writers.begin(["a\nend"]))
        raises(TypeError, lambda: writers.begin("a"))
        # It goes on after an error.
        writers.invalidate(["python:1"])
    raises(WritersError, lambda: Writers(path + ".none", timeout_s=0.1).begin(["a"]))
    silent()
    print("python: ok")


def gate(path, writers):
    writers.read("python 1")
    with Writers(path, timeout_s=0.1) as other:
        other.read("python 1")
        assert other.read_end("python 1") is True
        raises(WritersError, lambda: other.write("python 1"))
        assert writers.read_end("python 1") is True
        assert writers.read_end("python 1") is False
    with Writers(path) as other:
        other.write("python 1")
        assert other.write_end("python 1") is True


def fail_within(writers):
    with writers.update(["python:2"]):
        raise ZeroDivisionError


def silent():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "silent.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen()
        error = raises(WritersError, lambda: Writers(path, timeout_s=0.1).begin(["a"]))
        assert "no answer" in str(error) or "timed out" in str(error), error
        held = listener.accept()[0]
        # One that ends in the middle of an answer.
        ended = threading.Thread(target=lambda: answer_half(listener))
        ended.start()
        raises(WritersError, lambda: Writers(path, timeout_s=5).begin(["a"]))
        ended.join()
        held.close()
        listener.close()


def answer_half(listener):
    stream = listener.accept()[0]
    stream.recv(100)
    stream.sendall(b"ok 0")
    stream.close()


if __name__ == "__main__":
    main(sys.argv[1])
