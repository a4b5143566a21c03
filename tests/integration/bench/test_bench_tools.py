"""``flexinfer bench run|list|show|compare`` as a person or a script uses it."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.apps.bench_tools import ACTIONS, run
from flexinfer.config.bench_tools import BenchRunSettings
from flexinfer.config.common import parse
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchCompleted, NodeStatus
from flexinfer.local.nats_server import NatsServer
from flexinfer.testing.bus import until
from flexinfer.testing.fake_engine import FakeEngine, Fault

RECORDED = Path(__file__).parents[2] / "tapes" / "recorded"


async def bench(action: str, *argv: str) -> int:
    return await run(parse(ACTIONS[action][0], f"flexinfer bench {action}", argv, {}))


async def measure(engine: FakeEngine, *argv: str) -> int:
    quick = ("--min-duration", "0", "--batch-size", "8", "--concurrency", "1,4")
    return await bench("run", "--url", engine.url, *quick, *argv)


async def test_a_run_prints_a_table_and_live_progress(engine: FakeEngine, capsys):
    assert await measure(engine, "--model", "fake-model") == 0
    out, err = capsys.readouterr()
    assert "tokens/s, median of 5 iterations" in out
    assert "first token" in out
    assert "warm-up" in err
    assert "4 at once, 64 prompt tokens" in err


async def test_the_only_model_of_a_server_need_not_be_named(engine: FakeEngine, capsys):
    assert await measure(engine) == 0
    assert "fake-model" in capsys.readouterr().out


async def test_json_and_csv_are_alone_on_stdout(engine: FakeEngine, capsys):
    assert await measure(engine, "--output", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tokensPerSecond"] > 0
    assert [point["concurrency"] for point in document["curve"]] == [1, 4]
    assert await measure(engine, "--output", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["concurrency"] for row in rows] == ["1", "4"]


async def test_chat_with_a_key(engine: FakeEngine):
    assert await measure(engine, "--api", "chat", "--api-key", "secret") == 0
    assert all(request.headers["authorization"] == "Bearer secret" for request in engine.seen)
    assert engine.seen[-1].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--model", "other"), 6, "the server has fake-model"),
        (("--iterations", "0"), 2, "iterations must be at least 1"),
        (("--batch-size", "-4"), 2, "batch size"),
        (("--concurrency", "one"), 2, "write 1,8"),
        (("--ca", "/nowhere/ca.pem"), 2, "CA file"),
    ],
)
async def test_bad_input_is_a_reason_and_a_remedy(engine: FakeEngine, capsys, argv, code, words):
    assert await measure(engine, *argv) == code
    err = capsys.readouterr().err
    assert words in err
    assert len(err.strip().splitlines()) == 2


async def test_no_server(capsys):
    assert await bench("run", "--url", "http://127.0.0.1:1", "--model", "m", "--ready-timeout", "0.3") == 3
    assert "NotReady" in capsys.readouterr().err


async def test_no_server_and_no_model(capsys):
    assert await bench("run", "--url", "http://127.0.0.1:1") == 3
    assert "NotReady: no model is named" in capsys.readouterr().err


async def test_no_address(capsys):
    assert await bench("run", "--model", "m") == 2
    assert "url must not be empty" in capsys.readouterr().err


async def test_an_engine_that_breaks(engine: FakeEngine, capsys):
    engine.fault = Fault(malformed_after=2)
    assert await measure(engine) == 5
    assert "MalformedStream" in capsys.readouterr().err


async def test_a_file_that_cannot_be_written(engine: FakeEngine, capsys, tmp_path: Path):
    assert await measure(engine, "--svg", str(tmp_path / "no" / "dir.svg")) == 7
    assert "cannot write" in capsys.readouterr().err


@pytest.fixture
async def tape(engine: FakeEngine, tmp_path: Path, capsys) -> Path:
    """A run, before it one of the same kind half as fast, and first of all lines that are no events."""
    path = tmp_path / "tape.jsonl"
    assert await measure(engine, "--save", str(path)) == 0
    capsys.readouterr()
    event = json.loads(path.read_text())
    before = {**event, "id": "before", "time": "2026-01-31T12:00:00.000000Z"}
    before["data"] = {**event["data"], "tokensPerSecond": event["data"]["tokensPerSecond"] / 2}
    lines = ('{"kind": "tick"}', "not json", json.dumps(before), json.dumps(event))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def times(tape: Path) -> list[str]:
    """When the runs of the tape were completed."""
    return [json.loads(line)["time"] for line in tape.read_text().splitlines()[2:]]


@pytest.fixture
def last(tape: Path, tmp_path: Path) -> Path:
    """A tape of the second run alone."""
    path = tmp_path / "last.jsonl"
    path.write_text(tape.read_text().splitlines()[-1] + "\n")
    return path


async def test_history_and_comparison_work_on_a_tape(tape: Path, times: list[str], tmp_path: Path, capsys):
    assert await bench("list", "--tape", str(tape), "--output", "json") == 0
    [newest] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    key = newest["key"]
    assert await bench("show", key, "--tape", str(tape), "--svg", str(tmp_path / "curve.svg")) == 0
    out = capsys.readouterr().out
    assert "History" in out
    ET.parse(tmp_path / "curve.svg")
    svg = tmp_path / "both.svg"
    old = f"{key}@{times[0][:23]}"
    assert await bench("compare", old, "--tape", str(tape), "--output", "json", "--svg", str(svg)) == 0
    document = json.loads(capsys.readouterr().out)
    speed = next(row for row in document["rows"] if row["name"] == "tokens/s")
    assert speed["changePercent"] == pytest.approx(100)
    assert speed["better"] is True
    assert document["identity"] == []
    ET.parse(svg)
    assert await bench("compare", old, key, "--tape", str(tape)) == 0
    assert "change" in capsys.readouterr().out


async def test_a_recorded_tape_is_read_as_it_is(capsys, tmp_path: Path):
    """The journal of a manager that measured one model on two kinds of node."""
    tape = str(RECORDED / "home-lab-manager.jsonl.gz")
    assert await bench("list", "--tape", tape, "--output", "json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len({row["deviceClass"] for row in found}) >= 2
    assert all(row["tokensPerSecond"] > 0 and row["curve"] for row in found)
    svg = tmp_path / "curve.svg"
    assert await bench("show", found[0]["key"], "--tape", tape, "--svg", str(svg)) == 0
    assert found[0]["deviceClass"] in capsys.readouterr().out
    ET.parse(svg)
    assert await bench("compare", found[0]["key"], found[1]["key"], "--tape", tape, "--output", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert any(change.startswith("device class: ") for change in document["identity"])
    assert await bench("show", found[1]["key"], "--tape", tape, "--output", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["key"] for row in rows} == {found[1]["key"]}


async def test_a_tape_of_a_newer_release_is_not_taken_for_an_empty_one(tmp_path: Path, capsys):
    tape = tmp_path / "tape.jsonl"
    tape.write_text(
        '{"tape": "flexinfer", "version": 99, "component": "manager", "instance": "m", "release": "9", "started": 1}\n'
    )
    assert await bench("list", "--tape", str(tape)) == 1
    assert "newer than this release" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("show",), "name a result"),
        (("show", "zzz"), "there is no result 'zzz'"),
        (("compare",), "name a result"),
        (("compare", "fake-model"), "only run of its kind"),
    ],
)
async def test_what_cannot_be_shown_is_said(last: Path, capsys, argv, words):
    assert await bench(*argv, "--tape", str(last)) == 1
    assert words in capsys.readouterr().err


async def test_a_tape_that_is_not_there(capsys, tmp_path: Path):
    assert await bench("list", "--tape", str(tmp_path / "none")) == 1
    assert "No such file" in capsys.readouterr().err


async def test_an_empty_tape(capsys, tmp_path: Path):
    (tmp_path / "empty").touch()
    assert await bench("list", "--tape", str(tmp_path / "empty")) == 0
    assert "no results yet" in capsys.readouterr().out


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    running = NatsServer(tmp_path / "nats")
    await running.start()
    yield running
    await running.stop()


async def test_results_come_from_the_bus(server: NatsServer, capsys):
    result = BenchCompleted(
        key="m-0123456789ab", namespace="default", model="m", workload="m-ba9876543210", source="m.gguf",
        backend="llamacpp", device_class="cpu-x-2t", tokens_per_second=50.0, iterations=5, duration_seconds=30.0,
    )  # fmt: skip
    bus = await NatsBus.start(server.url, name="test")
    await until(lambda: bus.connected)
    await bus.ensure()
    mint = EventMint.start("bench", "m", "boot", lambda: 1_700_000_000.0)
    await bus.publish(mint.mint(result), durable=True)
    await bus.publish(mint.mint(NodeStatus(node="n", state="online")), durable=True)
    await bus.close()
    assert await bench("list", "--nats-url", server.url) == 0
    assert "m-0123456789ab" in capsys.readouterr().out
    assert await bench("show", "m-", "--nats-url", server.url, "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["tokensPerSecond"] == 50.0


async def test_a_bus_that_is_not_there(capsys):
    assert await bench("list", "--nats-url", "nats://127.0.0.1:1") == 1
    assert "flexinfer bench:" in capsys.readouterr().err


async def test_settings_of_no_action():
    with pytest.raises(TypeError):
        await run(BenchRunSettings.__mro__[2]())
