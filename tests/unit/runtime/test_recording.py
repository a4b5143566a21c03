"""The flight recorder: parts that stand alone, filters, hidden names, packing and pruning."""

from pathlib import Path

import pytest

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import Cpu, EventData, ModelPhase, NodeHardware, NodeStatus, NodeTelemetry
from flexinfer.ports import Snapshot
from flexinfer.runtime.journal import Header, read_tape
from flexinfer.runtime.parts import Limits, pack, prune
from flexinfer.runtime.recording import Recorder
from flexinfer.runtime.sifting import hiding, wanted

START = 1_800_000_000.0


def header(started: float = START) -> Header:
    return Header(tape="flexinfer", version=1, component="recorder", instance="pc", release="0", started=started)


def everything(event: Event) -> Event:
    return event


class Bus:
    """Events in order of one process."""

    def __init__(self) -> None:
        self.now = START
        self._mint = EventMint.start("agent", "n1", "boot-1", lambda: self.now)

    def say(self, data: EventData) -> Event:
        return self._mint.mint(data)

    def live(self, node: str = "n1") -> Event:
        return self.say(NodeTelemetry(node=node, interval_seconds=2.0))


def phase(*, gone: bool = False) -> ModelPhase:
    return ModelPhase(
        namespace="default", model="m", kind="Model", phase="Running", reason="Up", message="", gone=gone
    )  # fmt: skip


def test_each_part_begins_with_the_state_of_its_moment(tmp_path: Path) -> None:
    bus = Bus()
    recorder = Recorder(tmp_path, header(), Limits(age=10.0), everything)
    for at, event in ((1.0, bus.say(NodeHardware(node="n1"))), (2.0, bus.live()), (11.0, bus.say(phase()))):
        recorder.take(START + at, event)
    recorder.take(START + 12.0, bus.say(phase(gone=True)))
    recorder.take(START + 22.0, bus.live())
    recorder.close()

    first, second, third = (read_tape(path) for path in recorder.finished)
    assert [type(fact).__name__ for _, fact in first.facts] == ["Event", "Event", "Event"]
    for tape, names in (
        (second, {"NodeHardware", "NodeTelemetry", "ModelPhase"}),
        (third, {"NodeHardware", "NodeTelemetry"}),
    ):
        fact = tape.facts[0][1]
        assert isinstance(fact, Snapshot)
        assert {type(event.data).__name__ for event in fact.events} == names
    assert recorder.events == 5
    assert [tape.header.started for tape in (first, second, third)] == [START, START + 11.0, START + 22.0]


def test_a_part_ends_by_its_size(tmp_path: Path) -> None:
    bus = Bus()
    recorder = Recorder(tmp_path, header(), Limits(size=100_000), everything)
    for step in range(2000):
        recorder.take(START + step, bus.live())
    recorder.close()

    sizes = [path.stat().st_size for path in recorder.finished]
    assert len(sizes) > 3
    assert max(sizes) < 300_000
    assert sum(len(read_tape(path).facts) for path in recorder.finished) == 2000 + recorder.parts - 1


def test_a_snapshot_removes_what_it_lacks_from_the_state(tmp_path: Path) -> None:
    bus = Bus()
    recorder = Recorder(tmp_path, header(), Limits(age=10.0), everything)
    recorder.take(START + 1, bus.say(phase()))
    recorder.take(START + 2, Snapshot((ModelPhase,), (), 2))
    recorder.take(START + 20, bus.live())
    recorder.close()

    fact = read_tape(recorder.finished[-1]).facts[0][1]
    assert isinstance(fact, Snapshot)
    assert {type(event.data) for event in fact.events} == {NodeTelemetry}


def test_what_is_left_out_is_on_no_tape(tmp_path: Path) -> None:
    bus = Bus()
    test = wanted("-telemetry")
    recorder = Recorder(tmp_path, header(), Limits(), lambda event: event if test(event) else None)
    hardware = bus.say(NodeHardware(node="n1"))
    recorder.take(START, Snapshot((NodeHardware, NodeTelemetry), (hardware, bus.live()), 1))
    recorder.take(START, bus.live())
    recorder.close()

    [(_, fact)] = read_tape(recorder.finished[0]).facts
    assert isinstance(fact, Snapshot)
    assert fact.events == (hardware,)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", True), ("telemetry", True), ("node n1", True), ("node n2", False), ("-telemetry", False), ("-", True),
        ("TELEMETRY -hardware", True), ("/agent/n1", True),
    ],
)  # fmt: skip
def test_filters(words: str, expected: bool) -> None:
    assert wanted(words)(Bus().live()) is expected


def test_hidden_words_are_gone_and_stay_one_thing() -> None:
    bus = Bus()
    hide = hiding(["n1", "Threadripper"])
    found = [hide(bus.live()), hide(bus.say(NodeHardware(node="n1", cpu=Cpu(model="Threadripper 7970X"))))]

    live, hardware = [event.data for event in found if event]
    assert isinstance(live, NodeTelemetry)
    assert isinstance(hardware, NodeHardware)
    assert live.node == hardware.node == "hidden-1"
    assert hardware.cpu.model == "hidden-2 7970X"


def test_secrets_are_hidden_without_asking() -> None:
    event = Bus().say(NodeHardware(node="n1", labels={"example.com/api-token": "abc", "zone": "a"}))

    found = hiding([])(event)
    assert found
    assert isinstance(found.data, NodeHardware)
    assert found.data.labels == {"example.com/api-token": "[redacted]", "zone": "a"}


def test_a_word_that_events_are_made_of_costs_the_event_not_the_recorder() -> None:
    assert hiding(["ai.flexinfer"])(Bus().live()) is None


def test_nothing_to_hide_is_the_same_event() -> None:
    event = Bus().say(NodeStatus(node="n1", state="online"))

    assert hiding(["elsewhere"])(event) is event


def test_packed_parts_read_the_same_and_the_oldest_go(tmp_path: Path) -> None:
    bus = Bus()
    recorder = Recorder(tmp_path, header(), Limits(age=1.0), everything)
    for step in range(5):
        recorder.take(START + step, bus.live())
    recorder.close()
    plain = [read_tape(path) for path in recorder.finished]

    packed = [pack(path) for path in recorder.finished]
    assert [read_tape(path).facts for path in packed] == [tape.facts for tape in plain]
    assert [path for path in recorder.finished if path.exists()] == []

    (tmp_path / "recorder-other-1.jsonl").write_text("{}\n")
    assert prune(tmp_path, header(), 2) == packed[:-2]
    assert sorted(tmp_path.iterdir()) == sorted([*packed[-2:], tmp_path / "recorder-other-1.jsonl"])
    assert prune(tmp_path, header(), 0) == []
