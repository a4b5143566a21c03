"""Too much, too slow and without end, against the processes with the limits they ship with: each is cut, memory stays
where it was, and others are served meanwhile."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

from tests.abuse import raw
from tests.abuse.programs import Running, all_programs

CUT_SECONDS = 240.0  # how long an attacker may go on before the test fails; nothing is measured by it
MOST_SENT = 512 << 20  # bytes
GROWTH = 96 << 20  # bytes
PIECE = b"a" * (1 << 16)
CHUNK = b"10000\r\n" + PIECE + b"\r\n"
CHUNKED = b"Transfer-Encoding: chunked"

Pieces = Callable[[Running], Iterator[bytes]]


def _slow(first: bytes) -> Iterator[bytes]:
    return chain([first], repeat(b"a"))


SLOW: dict[str, Pieces] = {
    "head": lambda one: _slow(b"GET /healthz HTTP/1.1\r\nX: "),
    "body": lambda one: _slow(raw.post(one.path, b"Content-Length: 100000")),
    "chunk extension": lambda one: _slow(raw.post(one.path, CHUNKED, body=b"5;")),
    "trailer": lambda one: _slow(raw.post(one.path, CHUNKED, body=b"2\r\n{}\r\n0\r\nX: ")),
}
ENDLESS: dict[str, Pieces] = {
    "head": lambda one: chain([b"GET /healthz HTTP/1.1\r\nX: "], repeat(PIECE)),
    "heads": lambda one: chain([b"GET /healthz HTTP/1.1\r\n"], repeat(b"a:b\r\n" * 16384)),
    "path": lambda one: chain([b"GET /"], repeat(PIECE)),
    "empty lines": lambda one: repeat(b"\r\n" * 32768),
    "body": lambda one: chain([raw.post(one.path, CHUNKED)], repeat(CHUNK)),
    "body of a length": lambda one: chain([raw.post(one.path, b"Content-Length: %d" % (1 << 40))], repeat(PIECE)),
    "body of a GET": lambda one: chain([b"GET /metrics HTTP/1.1\r\nHost: h\r\n", CHUNKED, b"\r\n\r\n"], repeat(CHUNK)),
    "chunk extension": lambda one: chain([raw.post(one.path, CHUNKED, body=b"5;")], repeat(PIECE)),
    "trailer": lambda one: chain([raw.post(one.path, CHUNKED, body=b"2\r\n{}\r\n0\r\nX: ")], repeat(PIECE)),
    "trailers": lambda one: chain([raw.post(one.path, CHUNKED, body=b"2\r\n{}\r\n0\r\n")], repeat(b"a:b\r\n" * 16384)),
    "upgrade": lambda one: chain(
        [b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"], repeat(PIECE)
    ),
}


async def pressed(one: Running, pieces: Iterator[bytes], pause: float) -> bytes:
    """Send until the other side ends the connection; what it said. Raises AssertionError if it takes all of it."""
    reader, writer = await one.connect()
    sent, said = 0, asyncio.ensure_future(_all(reader))  # noqa: TID251 - awaited below
    try:
        async with asyncio.timeout(CUT_SECONDS):
            for piece in pieces:
                with suppress(ConnectionError):
                    writer.write(piece)
                    await writer.drain()
                if pause:
                    await asyncio.wait([said], timeout=pause)
                else:
                    await asyncio.sleep(0)
                sent += len(piece)
                if said.done():
                    break
                assert sent < MOST_SENT, f"{one.name} took {sent} bytes"
            return await said
    finally:
        said.cancel()
        writer.transport.abort()


async def _all(reader: asyncio.StreamReader) -> bytes:
    found = b""
    with suppress(ConnectionError):
        while piece := await reader.read(1 << 16):
            found += piece
    return found


async def unread(one: Running, stop: asyncio.Event) -> None:
    """Ask again and again on one connection, and read nothing."""
    reader, writer = await one.connect()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    data = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 400
    try:
        with suppress(ConnectionError):
            for _ in range(200):
                writer.write(data)
                drained = asyncio.ensure_future(writer.drain())  # noqa: TID251 - ended below
                stopped = asyncio.ensure_future(stop.wait())  # noqa: TID251 - ended below
                await asyncio.wait([drained, stopped], return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                if stop.is_set():
                    drained.cancel()
                    break
                await drained
            await stop.wait()
    finally:
        writer.transport.abort()


async def idle(one: Running, stop: asyncio.Event) -> None:
    """Many connections that say nothing."""
    held = [await one.connect() for _ in range(150)]
    await stop.wait()
    for _, writer in held:
        writer.transport.abort()


async def served(one: Running, stop: asyncio.Event) -> int:
    """Another client, the whole time."""
    count = 0
    while not stop.is_set():
        assert await one.status() == 200
        count += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await stop.wait()
    return count


async def attacked(one: Running) -> tuple[dict[str, bytes], int]:
    """Everything at once; what each attacker was told, and how many others were served."""
    stop = asyncio.Event()
    attacks = {f"slow {name}": pressed(one, pieces(one), 1.0) for name, pieces in SLOW.items()}
    attacks |= {f"endless {name}": pressed(one, pieces(one), 0.0) for name, pieces in ENDLESS.items()}
    async with asyncio.TaskGroup() as group:
        others = group.create_task(served(one, stop))
        for bad in (unread(one, stop), idle(one, stop)):
            group.create_task(bad)
        answers = await asyncio.gather(*attacks.values())
        stop.set()
    return dict(zip(attacks, answers, strict=True)), others.result()


async def test_every_flood_is_cut_while_others_are_served(tmp_path: Path) -> None:
    async with all_programs(tmp_path) as programs:
        before = {one.name: one.memory() for one in programs}
        for one, (answers, others) in zip(programs, await asyncio.gather(*map(attacked, programs)), strict=True):
            assert others
            assert await one.status() == 200
            grown = one.memory("VmHWM") - before[one.name]
            assert grown < GROWTH, f"{one.name} grew by {grown >> 20} MiB"
            for what, answer in answers.items():
                assert not set(raw.statuses(answer)) - {200, 400, 405, 408, 413, 431}, (one.name, what, answer[:200])
            assert raw.statuses(answers["slow head"]) == [408], one.name
            assert "Traceback" not in one.said(), one.said()
