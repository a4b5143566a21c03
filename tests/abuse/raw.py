"""Bytes no client of ours would send, and a socket to send them with."""

import asyncio
from contextlib import suppress

DEADLINE = 60.0


async def reply(port: int, data: bytes, *, end: bool = True, patience: float = 0.0) -> bytes:
    """All that comes back for ``data`` until the connection ends.

    ``end`` closes our side, which a server may take for a client that left: first it gets ``patience`` seconds
    without a byte to answer.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    found = b""
    try:
        async with asyncio.timeout(DEADLINE):
            with suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
                if patience:
                    found = await _while_it_talks(reader, patience)
                if end:
                    writer.write_eof()
            with suppress(ConnectionError):
                while piece := await reader.read(1 << 16):
                    found += piece
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return found


async def _while_it_talks(reader: asyncio.StreamReader, patience: float) -> bytes:
    found = b""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(patience):
                piece = await reader.read(1 << 16)
            if not piece:
                break
            found += piece
    return found


def statuses(raw: bytes) -> list[int]:
    """The status of every answer in what a server wrote; only its own heads begin a line like this."""
    return [int(line[9:12]) for line in raw.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: h", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def post(path: str, *headers: bytes, body: bytes = b"") -> bytes:
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: h", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def malformed(path: str) -> dict[str, bytes]:
    """Requests that are none, by what is wrong with them."""
    small = b'{"model":"m"}'
    size = b"Content-Length: %d" % len(small)
    chunked = b"Transfer-Encoding: chunked"
    return {
        "noise": bytes(range(256)) * 8,
        "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(30),
        "HTTP/0.9": b"GET /healthz\r\n\r\n",
        "HTTP/9.9": b"GET /healthz HTTP/9.9\r\nHost: h\r\n\r\n",
        "only line ends": b"\r\n" * 400,
        "a length below zero": post(path, b"Content-Length: -1", body=small),
        "a signed length": post(path, b"Content-Length: +13", body=small),
        "a length in hex": post(path, b"Content-Length: 0x0d", body=small),
        "a length with a comma": post(path, b"Content-Length: 13, 13", body=small),
        "a length beyond 64 bits": post(path, b"Content-Length: 99999999999999999999", body=small),
        "two lengths": post(path, size, b"Content-Length: 5", body=small),
        "the same length twice": post(path, size, size, body=small),
        "length and chunked": post(path, size, chunked, body=b"0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n"),
        "chunked twice": post(path, chunked, chunked, body=b"0\r\n\r\n"),
        "an unknown coding": post(path, b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
        "a coding after chunked": post(path, b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"),
        "a coding with a tab": post(path, b"Transfer-Encoding:\x0bchunked", body=b"0\r\n\r\n"),
        "a chunk beyond 64 bits": post(path, chunked, body=b"fffffffffffffffff\r\n" + small),
        "a chunk below zero": post(path, chunked, body=b"-1\r\n" + small),
        "a chunk without an end": post(path, chunked, body=b"d\r\n" + small + b"0\r\n\r\n"),
        "a bare CR after a chunk size": post(path, chunked, body=b"d\rX" + small),
        "a header with NUL": post(path, b"X: a\x00b", size, body=small),
        "a header with a bare CR": post(path, b"X: a\rContent-Length: 0", size, body=small),
        "a space before the colon": post(path, b"Content-Length : 13", body=small),
        "a folded header": post(path, b"X: a\r\n Content-Length: 0", size, body=small),
        "bare line feeds": post(path, size, body=small).replace(b"\r\n", b"\n"),
        "no header name": post(path, b": x", size, body=small),
        "a space in the path": b"GET /heal thz HTTP/1.1\r\nHost: h\r\n\r\n",
        "a tab in the path": b"GET /heal\tthz HTTP/1.1\r\nHost: h\r\n\r\n",
        "high bytes in the path": b"GET /\xff\xfe\xe2\x80\xae HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: h\r\n\r\n",
        "an absolute URI": b"GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nHost: h\r\n\r\n",
        "a star": b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "an unknown method": b"HACK /healthz HTTP/1.1\r\nHost: h\r\n\r\n",
        "a megabyte of header": post(path, b"X: " + b"a" * (1 << 20), size, body=small),
        "a megabyte of headers": post(path, *[b"a:b"] * (1 << 18), size, body=small),
        "a megabyte of path": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        "a megabyte of trailer": post(path, chunked, body=b"d\r\n" + small + b"\r\n0\r\nX: " + b"a" * (1 << 20)),
        "a megabyte of chunk extension": post(path, chunked, body=b"d;x=" + b"a" * (1 << 20)),
        "a body cut short": post(path, b"Content-Length: 500", body=small),
        "a chunk cut short": post(path, chunked, body=b"ff\r\n" + small),
        "a head cut short": b"POST " + path.encode() + b" HTTP/1.1\r\nHost: h\r\nContent-Le",
        "noise behind a request": get("/healthz").replace(b"Connection: close\r\n", b"") + bytes(range(256)),
        "an upgrade": post(path, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", size, body=small),
        "a websocket": get("/healthz").replace(b"Connection: close", b"Connection: Upgrade\r\nUpgrade: websocket"),
    }  # fmt: skip
