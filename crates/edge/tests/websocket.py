"""A WebSocket server and a client of Python's `websockets`, for tests/websocket.rs.

    websocket.py serve      echoes; prints its port; `close CODE REASON` closes
    websocket.py talk URL   talks to it and prints what came back
"""

import asyncio
import hashlib
import sys

try:
    import websockets
except ImportError:
    print("no websockets")
    sys.exit(1)

SIZES = [0, 1, 125, 126, 127, 4096, 65535, 65536, 1000000]


async def echo(socket, path=None):
    try:
        async for message in socket:
            if isinstance(message, str) and message.startswith("close "):
                _, code, reason = message.split(" ", 2)
                await socket.close(int(code), reason)
                return
            await socket.send(message)
    except websockets.ConnectionClosed:
        pass


async def serve():
    options = {"max_size": None, "ping_interval": None, "subprotocols": ["chat", "news"]}
    async with websockets.serve(echo, "127.0.0.1", 0, **options) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()


def told(name, message):
    data = message.encode() if isinstance(message, str) else bytes(message)
    print(name, type(message).__name__, len(data), hashlib.sha256(data).hexdigest(), flush=True)


async def talk(url, compression):
    options = {
        "max_size": None,
        "ping_interval": None,
        "compression": compression,
        "subprotocols": ["news"],
    }
    async with websockets.connect(url, **options) as socket:
        print("agreed", socket.subprotocol, [e.name for e in socket.extensions])
        for size in SIZES:
            data = bytes(i * 7 % 251 for i in range(size))
            await socket.send(data)
            told("binary", await socket.recv())
            await socket.send("ä" * size)
            told("text", await socket.recv())
        for parts in [["one"], ["one", "", "two"], ["ß" * 5000] * 9]:
            await socket.send(parts)
            told("parts", await socket.recv())
        await socket.send([b"\0" * 70000, b"\1", b""])
        told("parts", await socket.recv())
        for payload in ["", "x" * 125]:
            pong = await socket.ping(payload)
            await asyncio.wait_for(pong, 20)
            print("pong")
        for number in range(200):
            await socket.send(f"message {number}")
        for number in range(200):
            assert await socket.recv() == f"message {number}"
        print("burst")
        await socket.close(4001, "enough")
    print("closed", socket.close_code, socket.close_reason)


async def closed_by_server(url, code, reason):
    async with websockets.connect(url, ping_interval=None) as socket:
        await socket.send(f"close {code} {reason}")
        try:
            await socket.recv()
        except websockets.ConnectionClosed as closed:
            print("closed by the server", closed.rcvd, socket.close_code)


async def main():
    if sys.argv[1] == "serve":
        await serve()
        return
    for compression in [None, "deflate"]:
        await talk(sys.argv[2], compression)
    for code in [1000, 1001, 1011, 3000, 4999]:
        await closed_by_server(sys.argv[2], code, "reason of the server")


asyncio.run(main())
