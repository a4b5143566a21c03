"""A whole run against a fake engine: what reaches the bus, the termination log and the exit code."""

import asyncio
import ssl
import time

import pytest
import trustme

from flexinfer.apps.bench import measure
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchFailed,
    BenchSample,
    BenchStarted,
    Cpu,
    Device,
    DeviceTelemetry,
    Endpoint,
    ModelEndpoint,
    NodeHardware,
    NodeTelemetry,
)
from flexinfer.contracts.termination import decode_outcome
from flexinfer.core.benchmark.failures import (
    EXIT_DONE,
    EXIT_ENGINE,
    EXIT_NOT_READY,
    EXIT_REFUSED,
    EXIT_SETTINGS,
    EXIT_STOPPED,
    EXIT_UNDELIVERED,
    EXIT_UNMEASURABLE,
)
from flexinfer.testing.fake_engine import FakeEngine, Fault, Speeds


def remarks(bus) -> list[str]:
    """Notes of the result, but for the spread, which on a busy machine is none of the test's business."""
    return [note for note in bus.of(BenchCompleted)[0].notes if not note.startswith("spread")]


async def test_a_run_ends_with_one_whole_result_on_both_ways_out(engine: FakeEngine, bus, short):
    engine.speeds = Speeds(tokens_per_second=500)
    settings = short()
    assert await measure(settings, bus, asyncio.Event()) == EXIT_DONE
    [done] = bus.of(BenchCompleted)
    assert decode_outcome(settings.termination_log.read_bytes()) == done
    assert bus.durable == ["ai.flexinfer.bench.completed.v1"]
    assert 0 < done.tokens_per_second <= 500  # how near depends on what else the machine does
    assert done.engine_tokens_per_second is not None
    assert (done.key, done.node, done.device_class) == ("fake-model-0123456789ab", "node-a", "cpu-fake-2t")
    assert [point.concurrency for point in done.curve] == [1, 4]
    assert done.iterations == 3
    assert remarks(bus) == []
    assert next(type(event.data) for event in bus.events) is BenchStarted


async def test_every_request_is_a_sample_warm_ups_too(engine: FakeEngine, bus, short):
    await measure(short(), bus, asyncio.Event())
    samples = bus.of(BenchSample)
    assert [s.warmup for s in samples[:5]] == [True, True, False, False, False]
    assert [s.iteration for s in samples[:5]] == [0, 1, 0, 1, 2]
    assert [s.concurrency for s in samples[5:]] == [4] * 8
    assert all(s.completion_tokens == 8 for s in samples)


async def test_prompts_are_exact_unlike_and_uncached(engine: FakeEngine, bus, short):
    engine.eos_after = 2
    await measure(short(api="chat", prompt_tokens="64"), bus, asyncio.Event())
    asked = [request.json() for request in engine.seen if request.json()["max_tokens"] == 8]
    texts = [body["messages"][0]["content"] for body in asked]
    assert len(set(texts)) == len(texts) == 13
    assert {len(text.split()) for text in texts} == {61}
    assert all(body["cache_prompt"] is False and body["ignore_eos"] is True for body in asked)
    notes = bus.of(BenchCompleted)[0].notes
    assert [note for note in notes if not note.startswith("spread of")] == []  # a busy test machine spreads


async def test_the_same_seed_sends_the_same_prompts(engine: FakeEngine, bus, short):
    settings = short(seed=42, concurrency="1")
    await measure(settings, bus, asyncio.Event())
    half = len(engine.seen)
    await measure(settings, bus, asyncio.Event())
    bodies = [request.json()["prompt"] for request in engine.seen]
    assert bodies[:half] == bodies[half:]


async def test_it_waits_for_an_engine_that_loads(engine: FakeEngine, bus, short):
    engine.then(Fault(status=503), Fault(status=404), Fault(status=429), Fault(drop=True))
    assert await measure(short(ready_timeout=20), bus, asyncio.Event()) == EXIT_DONE


async def test_a_node_of_another_class_gives_no_result(bus, short):
    mint = EventMint.start("agent", "node-a", "boot", lambda: 1000.0)
    bus.facts = (mint.mint(NodeHardware(node="node-a", cpu=Cpu(model="Other", threads=8))),)
    assert await measure(short(), bus, asyncio.Event()) == EXIT_REFUSED
    assert bus.of(BenchFailed)[0].reason == "WrongDeviceClass"


async def test_the_node_that_serves_counts_not_the_one_we_run_on(bus, short):
    mint = EventMint.start("manager", "m", "boot", lambda: 1000.0)
    endpoint = Endpoint(url="http://x", pod="p", node="node-b", device_class="cpu-fake-2t")
    bus.facts = (
        mint.mint(NodeHardware(node="node-a", cpu=Cpu(model="Other", threads=8))),
        mint.mint(NodeHardware(node="node-b", cpu=Cpu(model="fake", threads=2))),
        mint.mint(
            ModelEndpoint(
                namespace="default", model="fake-model", backend="llamacpp", endpoints=(endpoint,), hidden=True
            )
        ),
    )
    assert await measure(short(), bus, asyncio.Event()) == EXIT_DONE
    assert bus.of(BenchCompleted)[0].node == "node-b"
    assert bus.of(BenchStarted)[0].node == "node-b"


async def test_a_declared_node_gives_a_result_marked_virtual(bus, short):
    mint = EventMint.start("agent", "node-a", "boot", lambda: 1000.0)
    bus.facts = (mint.mint(NodeHardware(node="node-a", cpu=Cpu(model="fake", threads=2), virtual=True)),)
    assert await measure(short(), bus, asyncio.Event()) == EXIT_DONE
    assert bus.of(BenchCompleted)[0].virtual


@pytest.mark.parametrize(("threads", "code"), [(2, EXIT_DONE), (8, EXIT_REFUSED)])
async def test_a_bus_that_was_away_at_the_start_is_asked_again_at_the_end(
    engine: FakeEngine, bus, short, threads, code
):
    mint = EventMint.start("agent", "node-a", "boot", lambda: 1000.0)
    hardware = NodeHardware(node="node-a", cpu=Cpu(model="fake", threads=threads), virtual=True)
    bus.facts, bus.silent_until = (mint.mint(hardware),), BenchSample
    assert await measure(short(), bus, asyncio.Event()) == code
    assert [done.virtual for done in bus.of(BenchCompleted)] == ([True] if code == EXIT_DONE else [])


async def test_power_of_the_node_becomes_energy_per_token(engine: FakeEngine, bus, short):
    now = time.time()
    gpu = Device(index=0, uuid="g", vendor="NVIDIA", product="L4", arch="sm_89", memory_mib=24576)
    mint = EventMint.start("agent", "node-a", "boot", lambda: now)
    reading = DeviceTelemetry(index=0, uuid="g", power_watts=70.0)
    telemetry = NodeTelemetry(node="node-a", interval_seconds=0.01, devices=(reading,))
    bus.facts = (
        mint.mint(NodeHardware(node="node-a", devices=(gpu,))),
        *(mint.mint(telemetry, at=now + step * 0.01) for step in range(2000)),
    )
    engine.speeds = Speeds(tokens_per_second=200)
    settings = short(device_class="nvidia-l4-sm-89-24g-x1", iterations=10, cost_per_hour=0.36)
    assert await measure(settings, bus, asyncio.Event()) == EXIT_DONE
    [done] = bus.of(BenchCompleted)
    assert done.joules_per_token == pytest.approx(70.0 / done.curve[0].tokens_per_second, rel=0.1)
    assert done.cost_per_million_tokens == pytest.approx(100.0 / done.curve[1].tokens_per_second)


async def test_a_remark_of_the_planner_is_recorded(bus, short):
    assert await measure(short(note="measured on the running replica m-0"), bus, asyncio.Event()) == EXIT_DONE
    assert remarks(bus) == ["measured on the running replica m-0"]


async def test_without_a_bus_the_termination_message_is_enough(short):
    settings = short()
    assert await measure(settings, None, asyncio.Event()) == EXIT_DONE
    assert isinstance(decode_outcome(settings.termination_log.read_bytes()), BenchCompleted)


async def test_with_the_bus_away_the_termination_message_is_enough(bus, short):
    bus.away = True
    settings = short()
    assert await measure(settings, bus, asyncio.Event()) == EXIT_DONE
    assert isinstance(decode_outcome(settings.termination_log.read_bytes()), BenchCompleted)


async def test_a_result_nobody_took_is_not_a_success(bus, short, tmp_path):
    bus.away = True
    code = await measure(short(termination_log=tmp_path / "no" / "dir"), bus, asyncio.Event())
    assert code == EXIT_UNDELIVERED


@pytest.mark.parametrize(
    ("fault", "reason", "code"),
    [
        (Fault(status=429), "Limited", EXIT_REFUSED),
        (Fault(status=500), "Http", EXIT_ENGINE),
        (Fault(status=503), "NotReady", EXIT_NOT_READY),
        (Fault(status=404), "WrongModel", EXIT_REFUSED),
        (Fault(status=401), "Denied", EXIT_REFUSED),
        (Fault(reset_after=3), "Connection", EXIT_ENGINE),
        (Fault(truncate_after=3), "Connection", EXIT_ENGINE),
        (Fault(stall_after=3), "Timeout", EXIT_ENGINE),
        (Fault(error_after=3), "EngineFailed", EXIT_ENGINE),
        (Fault(malformed_after=3), "MalformedStream", EXIT_UNMEASURABLE),
        (Fault(no_usage=True), "NoUsage", EXIT_UNMEASURABLE),
        (Fault(tokens=0), "NoTokens", EXIT_UNMEASURABLE),
    ],
)
async def test_a_fault_while_measuring_is_a_failure_not_a_result(
    engine: FakeEngine, bus, short, fault: Fault, reason: str, code: int
):
    engine.then(*[Fault()] * 4)  # the ready probe, one fitting of the prompt, both warm-ups
    engine.fault = fault
    settings = short(request_timeout=0.3)
    assert await measure(settings, bus, asyncio.Event()) == code
    [failed] = bus.of(BenchFailed)
    assert failed.reason == reason
    assert failed.message
    assert failed.remedy
    assert bus.of(BenchCompleted) == []
    assert decode_outcome(settings.termination_log.read_bytes()) == failed


@pytest.mark.parametrize(
    ("fault", "reason", "code"),
    [
        (Fault(status=503), "NotReady", EXIT_NOT_READY),
        (Fault(status=500), "NotReady", EXIT_NOT_READY),
        (Fault(first_byte_delay=60), "NotReady", EXIT_NOT_READY),
        (Fault(status=404), "WrongModel", EXIT_REFUSED),
        (Fault(status=429), "Limited", EXIT_REFUSED),
        (Fault(status=401), "Denied", EXIT_REFUSED),
        (Fault(no_usage=True), "NoUsage", EXIT_UNMEASURABLE),
    ],
)
async def test_an_engine_that_never_becomes_ready(engine: FakeEngine, bus, short, fault, reason, code):
    engine.fault = fault
    assert await measure(short(), bus, asyncio.Event()) == code
    [failed] = bus.of(BenchFailed)
    assert failed.reason == reason
    assert bus.of(BenchStarted) == []


async def test_an_engine_that_is_not_there(bus, short):
    assert await measure(short(url="http://127.0.0.1:1"), bus, asyncio.Event()) == EXIT_NOT_READY
    assert bus.of(BenchFailed)[0].reason == "NotReady"


async def test_a_server_whose_certificate_is_not_trusted(bus, short):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    engine = await FakeEngine(ssl=context).start()
    settings = short(url=engine.url, ready_timeout=60)
    try:
        assert await measure(settings, bus, asyncio.Event()) == EXIT_REFUSED
        [failed] = bus.of(BenchFailed)
        assert (failed.reason, bool(failed.remedy)) == ("Tls", True)
        assert decode_outcome(settings.termination_log.read_bytes()) == failed
        with authority.cert_pem.tempfile() as ca:
            assert await measure(short(url=engine.url, ca=ca), bus, asyncio.Event()) == EXIT_DONE
    finally:
        await engine.stop()


@pytest.mark.parametrize(
    "answer", [b"220 mail ready\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"]
)
async def test_a_server_that_is_no_engine(bus, short, answer: bytes):
    async def page(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(page, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await measure(short(url=f"http://127.0.0.1:{port}"), bus, asyncio.Event()) == EXIT_UNMEASURABLE
    assert bus.of(BenchFailed)[0].reason == "MalformedStream"
    assert bus.of(BenchCompleted) == []


@pytest.mark.parametrize(
    "change",
    [
        {"url": ""}, {"url": "ftp://x"}, {"model": ""}, {"iterations": 0}, {"iterations": -1}, {"batch_size": 0},
        {"warmup_iterations": -1}, {"min_duration": -1}, {"concurrency": ""}, {"concurrency": "0"},
        {"concurrency": "1;8"}, {"prompt_tokens": "-5"}, {"ready_timeout": 0}, {"request_timeout": -1},
        {"key": "k" * 51}, {"cost_per_hour": -1}, {"ca": "/nowhere/ca.pem"},
    ],
)  # fmt: skip
async def test_a_bad_setting_is_a_failure_that_names_it(bus, short, change: dict):
    settings = short(**change)
    assert await measure(settings, bus, asyncio.Event()) == EXIT_SETTINGS
    failed = decode_outcome(settings.termination_log.read_bytes())
    assert isinstance(failed, BenchFailed)
    assert failed.reason == "BadSettings"
    assert next(iter(change)).replace("_", " ").removeprefix("min ").lower() in failed.message.lower()


async def test_a_limit_at_high_concurrency_costs_only_that_point(engine: FakeEngine, bus, short):
    engine.then(*[Fault()] * (1 + 1 + 2 + 3))
    engine.fault = Fault(status=429)
    assert await measure(short(), bus, asyncio.Event()) == EXIT_DONE
    [done] = bus.of(BenchCompleted)
    assert [point.concurrency for point in done.curve] == [1]
    assert any("concurrency 4" in note and "Limited" in note for note in done.notes)


async def test_an_engine_that_breaks_at_high_concurrency_gives_no_result(engine: FakeEngine, bus, short):
    engine.then(*[Fault()] * (1 + 1 + 2 + 3))
    engine.fault = Fault(reset_after=1)
    assert await measure(short(), bus, asyncio.Event()) == EXIT_ENGINE
    assert bus.of(BenchCompleted) == []


async def test_a_server_that_refuses_unknown_fields_is_asked_plainly(engine: FakeEngine, bus, short):
    engine.then(Fault(status=400))
    assert await measure(short(), bus, asyncio.Event()) == EXIT_DONE
    [done] = bus.of(BenchCompleted)
    assert any("ignore_eos" in note for note in done.notes)
    assert all("ignore_eos" not in request.json() for request in engine.seen[1:])


async def test_a_run_over_its_time_limit_is_no_result(engine: FakeEngine, bus, short):
    engine.speeds = Speeds(tokens_per_second=50)
    assert await measure(short(time_limit=0.3), bus, asyncio.Event()) == EXIT_ENGINE
    assert bus.of(BenchFailed)[0].reason == "TooSlow"


async def test_a_run_over_its_time_limit_may_lose_the_curve(engine: FakeEngine, bus, short):
    settings = short(min_duration=5, time_limit=0.4)
    assert await measure(settings, bus, asyncio.Event()) == EXIT_DONE
    [done] = bus.of(BenchCompleted)
    assert any("time limit" in note for note in done.notes)


async def test_a_stopped_run_publishes_nothing_more(engine: FakeEngine, bus, short):
    engine.then(*[Fault()] * 5)
    engine.fault = Fault(stall_after=1)
    settings = short(request_timeout=60)
    stop = asyncio.Event()
    run = asyncio.gather(measure(settings, bus, stop))
    async with asyncio.timeout(60):
        while not [s for s in bus.of(BenchSample) if not s.warmup]:  # noqa: ASYNC110 - the bus of the test has no event
            await asyncio.sleep(0.005)
    stop.set()
    assert await run == [EXIT_STOPPED]
    assert not settings.termination_log.exists()
    assert bus.of(BenchCompleted) == bus.of(BenchFailed) == []
