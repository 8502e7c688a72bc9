"""Tells Polder's caches that data changes.

    from polder_writers import Writers

    with Writers("/run/polder-shop/writers.sock") as writers:
        token = writers.begin(["product-4711", "front-page"])
        try:
            database.commit()
        except DatabaseError:
            writers.abort(token)      # only where the transaction is surely rolled back
            raise
        writers.end(token)

Between `begin` and `end` no cache serves a page that carries one of the tags; after `end`, none
serves a page that was made before. So nobody who knows of the commit ever gets an older page.
If `begin` fails, nothing may be committed. If `end` fails, the tags stay uncached, which is safe:
call it again with the same token, on a new connection too. `update` does all of this for a block:

        with writers.update(["product-4711"]):
            database.commit()

`invalidate` is for data that has changed already. The lines are described in docs/writers.md.
One object belongs to one thread at a time. It needs nothing but Python's own library.
"""

import contextlib
import socket
import time

LINE_BYTES_MAX = 128 << 10
_RETRY_PAUSE_S = 0.02


class WritersError(Exception):
    """The socket can't be reached, does not answer in time, or what it says is not understood."""


class Refused(WritersError):
    """It was not done; `code` is malformed, busy, denied, full or failed."""

    def __init__(self, code, words):
        super().__init__(f"{code}: {words}")
        self.code = code


class Writers:
    """A connection to a site's writers' socket, made when it is first needed."""

    def __init__(self, path, timeout_s=5.0):
        """`timeout_s` is for connecting, and for each answer."""
        self._path = path
        self._timeout_s = timeout_s
        self._socket = None
        self._rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the connection. What was begun stays pending until its token ends it."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def begin(self, tags):
        """Marks tags as pending; the token. Commit only after it."""
        answer = self._ask(self._tag_line("begin", tags))
        if not answer.startswith("ok "):
            raise WritersError(f"an answer that does not fit: {answer!r}")
        return answer[3:]

    def end(self, token):
        """After the commit. False if nothing of it was pending any more, which is no harm."""
        return self._end("end", token)

    def abort(self, token):
        """After the rollback. False if nothing of it was pending any more."""
        return self._end("abort", token)

    def invalidate(self, tags):
        """Voids what carries these tags, whose data has changed."""
        answer = self._ask(self._tag_line("invalidate", tags))
        if answer != "ok":
            raise WritersError(f"an answer that does not fit: {answer!r}")

    def read(self, document):
        """Waits until nobody writes a document, for `timeout_s` at most; it may be read then, until
        `read_end` or the end of the connection."""
        self._gate("read", document)

    def read_end(self, document):
        """False if it was free already: the connection was another one meanwhile."""
        return self._gate("read-end", document)

    def write(self, document):
        """Waits until nobody reads or writes a document; it may be written then, until `write_end`
        or the end of the connection. Caches know nothing of it: begin an update too."""
        self._gate("write", document)

    def write_end(self, document):
        """False if it was free already: the connection was another one meanwhile."""
        return self._gate("write-end", document)

    def _gate(self, word, document):
        answer = self._ask(self._tag_line(word, [document]))
        if answer not in ("ok", "gone"):
            raise WritersError(f"an answer that does not fit: {answer!r}")
        return answer == "ok"

    @contextlib.contextmanager
    def update(self, tags):
        """Begins before a block and ends after it, also where the block fails: an end voids too
        much at worst, so it is right whether or not the block committed. Only if the block may
        still commit later, let the token stay: use `begin` and `end` then."""
        token = self.begin(tags)
        try:
            yield token
        finally:
            self.end(token)

    def _end(self, word, token):
        if not token or not token.replace("-", "").isalnum():
            raise ValueError("no token of begin")
        answer = self._ask(f"{word} {token}\n".encode())
        if answer not in ("ok", "gone"):
            raise WritersError(f"an answer that does not fit: {answer!r}")
        return answer == "ok"

    @staticmethod
    def _tag_line(word, tags):
        if isinstance(tags, (str, bytes)):
            raise TypeError("tags is a list")
        line = word.encode()
        for tag in tags:
            tag = tag.encode() if isinstance(tag, str) else bytes(tag)
            if any(byte < 0x20 or byte == 0x7F for byte in tag):
                raise ValueError("a tag has no control characters")
            line += b"\t" + tag
        line += b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise ValueError("too many tags for one update")
        return line

    def _ask(self, line):
        try:
            self._connect()
            self._socket.sendall(line)
            answer = self._line()
        except OSError as error:
            # What comes later on this connection would answer something else.
            self.close()
            raise WritersError(f"{self._path}: {error}") from error
        except WritersError:
            self.close()
            raise
        if answer.startswith("error "):
            code, _, words = answer[6:].partition(" ")
            raise Refused(code, words)
        return answer

    def _connect(self):
        """Tries again for a while where nobody listens: the process may just be starting anew."""
        if self._socket is not None:
            return
        ends = time.monotonic() + self._timeout_s
        while True:
            stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            stream.settimeout(self._timeout_s)
            try:
                stream.connect(self._path)
            except (FileNotFoundError, ConnectionRefusedError):
                stream.close()
                if time.monotonic() >= ends:
                    raise
                time.sleep(_RETRY_PAUSE_S)
                continue
            except OSError:
                stream.close()
                raise
            self._socket = stream
            return

    def _line(self):
        ends = time.monotonic() + self._timeout_s
        while b"\n" not in self._rest:
            left = ends - time.monotonic()
            if left <= 0:
                raise WritersError(f"{self._path}: no answer within {self._timeout_s} s")
            self._socket.settimeout(left)
            part = self._socket.recv(4096)
            if not part:
                raise WritersError(f"{self._path}: the connection has ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")
