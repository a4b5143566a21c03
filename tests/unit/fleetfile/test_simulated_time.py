"""A loop whose time jumps, and its network in memory: what asyncio promises holds there too."""

import asyncio

import pytest

from flexinfer.adapters.inference.client import OpenAIClient
from flexinfer.ports import EngineError
from flexinfer.testing.fake_engine import FakeEngine, Fault, Speeds
from flexinfer.testing.simulated_time import SimulatedClock, Stalled, run_simulated


def test_sleeps_end_in_order_at_their_times_and_cost_nothing() -> None:
    async def body() -> list[tuple[str, float]]:
        clock, ends = SimulatedClock(), []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            ends.append((name, clock.monotonic()))

        await asyncio.gather(sleeper("day", 86_400), sleeper("hour", 3600), sleeper("year", 365 * 86_400))
        return ends

    assert run_simulated(body()) == [("hour", 3600), ("day", 86_400), ("year", 365 * 86_400)]


def test_a_timeout_is_one_of_simulated_seconds() -> None:
    async def body() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_simulated(body()) == pytest.approx(1000)


def test_nothing_to_wait_for_is_said() -> None:
    with pytest.raises(Stalled, match="no timer is set"):
        run_simulated(_wait_for_ever())


async def _wait_for_ever() -> None:
    await asyncio.Event().wait()


def test_threads_are_done_in_place() -> None:
    async def body() -> tuple[int, str]:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(sum, (1, 2)), "done"

    assert run_simulated(body()) == (3, "done")


def test_streams_carry_bytes_both_ways_until_both_ends_are_closed() -> None:
    async def body() -> tuple[bytes, bytes]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read()).upper())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "anywhere", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("anywhere", port)
        writer.write(b"hel")
        writer.write(b"lo")
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("anywhere", port)
        return answer, await reader.read()

    assert run_simulated(body()) == (b"HELLO", b"")


def test_a_reader_that_pauses_gets_everything_later() -> None:
    async def body() -> int:
        async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(100):
                writer.write(b"x" * 10_000)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(flood, "a", 1)
        reader, writer = await asyncio.open_connection("a", 1, limit=1000)
        await asyncio.sleep(10)
        found = await reader.read()
        writer.close()
        server.close()
        return len(found)

    assert run_simulated(body()) == 1_000_000


def test_an_address_in_use_is_refused() -> None:
    async def body() -> None:
        await asyncio.start_server(lambda _r, _w: None, "a", 1)
        with pytest.raises(OSError, match="in use"):
            await asyncio.start_server(lambda _r, _w: None, "a", 1)

    run_simulated(body())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(reset_after=5), "Connection"),
        (Fault(truncate_after=5), "Connection"),
        (Fault(stall_after=5), "Timeout"),
        (Fault(status=503), "NotReady"),
    ],
)
def test_an_engine_on_it_keeps_time_exactly_and_breaks_as_on_a_real_network(fault: Fault, reason: str) -> None:
    async def body() -> tuple[float, str]:
        clock = SimulatedClock()
        engine = await FakeEngine(speeds=Speeds(10.0), host="10.0.0.1", port=8080).start()
        client = OpenAIClient(engine.url, clock=clock.monotonic)
        done = await client.complete("fake-model", "hello", 50, {})
        engine.then(fault)
        with pytest.raises(EngineError) as broken:
            await client.complete("fake-model", "hello", 50, {})
        await engine.stop()
        return done.duration, broken.value.reason

    duration, why = run_simulated(body())

    assert duration == pytest.approx(5.0, abs=1e-6)
    assert why == reason
