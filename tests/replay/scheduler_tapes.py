"""Makes the extender's tapes and their golden decisions: ``python tests/replay/scheduler_tapes.py``.

The tapes are written by hand, fact by fact, with fixed times, and stay as they are: later releases must read them.
The goldens are what the reducers made of them when somebody last looked. A change of a golden belongs into the review
of the change that caused it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    CachedModel,
    Device,
    DeviceTelemetry,
    EventData,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.fleet.fold import STATE_TYPES
from flexinfer.core.hardware.device_class import device_class
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.journal import Fact, Header, Tick, Webhook, encode_line, read_tape
from flexinfer.testing.replay_scheduler import replay

FOLDER = Path(__file__).parents[1] / "tapes" / "scheduler"
START = 1_800_000_000.0
KEY = "llama3-8b-0123456789ab"
CARDS = {
    "4090": ("NVIDIA", "NVIDIA GeForce RTX 4090", "sm_89", 24564),
    "3060": ("NVIDIA", "NVIDIA GeForce RTX 3060", "sm_86", 12288),
    "7900": ("AMD", "AMD Radeon RX 7900 XTX", "gfx1100", 24560),
}

Line = tuple[float, Fact]


class Story:
    """Facts in the order they arrive, ``at`` seconds after START."""

    def __init__(self, **settings: Any) -> None:
        self.settings = {"weight_tps": 0.7} | settings
        self.lines: list[Line] = []
        self._mints: dict[str, EventMint] = {}
        self._at = 0.0

    def at(self, seconds: float) -> "Story":
        self._at = seconds
        return self

    def tell(self, fact: Fact) -> None:
        self.lines.append((START + self._at, fact))

    def event(self, source: str, data: EventData) -> Event:
        mint = self._mints.setdefault(source, EventMint.start("agent", source, "boot-1", lambda: START + self._at))
        return mint.mint(data)

    def live(self, node: str, util: float, free: int) -> Event:
        device = DeviceTelemetry(index=0, uuid=f"GPU-{node}", util_percent=util, memory_free_mib=free)
        return self.event(node, NodeTelemetry(node=node, interval_seconds=2.0, devices=(device,)))

    def begin(self, **kinds: str) -> None:
        """A fresh replica: lists and a snapshot; every node idle."""
        events = []
        for node, kind in kinds.items():
            events += [self.event(node, NodeHardware(node=node, devices=(card(node, kind),)))]
            events += [self.live(node, 0.0, CARDS[kind][3])]
        for kind, speed in (("4090", 58.0), ("3060", 10.0)):
            name = device_class(card("x", kind), 1)
            events.append(self.event(f"bench-{kind}", BenchCompleted(
                key=f"{KEY}-{kind}", namespace="default", model="llama3", workload=KEY, source="hf://llama3",
                backend="vllm", device_class=name, tokens_per_second=speed, iterations=5, duration_seconds=30.0,
            )))  # fmt: skip
        self.tell(Relisted("nodes", tuple({"metadata": {"name": node}} for node in kinds)))
        self.tell(Relisted("pods", ()))
        self.tell(Snapshot(STATE_TYPES, tuple(events), 1))

    def ask(self, phase: str, name: str, nodes: list[str], **annotations: str) -> None:
        body = {"Pod": pod(name, **annotations), "Nodes": None, "NodeNames": nodes}
        self.tell(Webhook(path=phase, body=msgspec.json.encode(body).decode()))

    def place(self, name: str, nodes: list[str], node: str, **annotations: str) -> None:
        """A whole attempt that ended on ``node``."""
        self.ask("filter", name, nodes, **annotations)
        self.ask("prioritize", name, nodes, **annotations)
        self.tell(KubeDelta(plural="pods", action="MODIFIED", object=pod(name, node=node, **annotations)))


def card(node: str, kind: str) -> Device:
    vendor, product, arch, memory = CARDS[kind]
    return Device(
        index=0, uuid=f"GPU-{node}", vendor=vendor, product=product, arch=arch, memory_mib=memory, int4=True  # type: ignore[arg-type]
    )  # fmt: skip


def pod(name: str, node: str | None = None, **annotations: str) -> dict[str, Any]:
    keys = {
        "vram": "flexinfer.ai/gpu.vram-estimate-mb", "key": "flexinfer.ai/benchmark-key",
        "entries": "flexinfer.ai/cache-entry",
    }  # fmt: skip
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}",
            "annotations": {keys[key]: value for key, value in ({"key": KEY} | annotations).items()},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
        | ({"nodeName": node} if node else {}),
    }  # fmt: skip


def burst() -> Story:
    """Four pods at once over two fast cards and one slow one: each on its own, the last one nowhere."""
    story = Story()
    story.begin(fast_a="4090", fast_b="4090", slow="3060", other="7900")
    nodes = ["fast_a", "fast_b", "slow"]
    story.at(1.0).place("one", nodes, "fast_a", vram="9000")
    story.at(1.1).place("two", ["fast_b", "slow"], "fast_b", vram="9000")
    story.at(1.2).ask("filter", "three", [*nodes, "other"], vram="9000")
    story.tell(KubeDelta(plural="pods", action="MODIFIED", object=pod("three", node="slow", vram="9000")))
    story.at(1.3).ask("filter", "four", [*nodes, "other"], vram="9000")
    return story


def silence() -> Story:
    """The bus goes silent: load counts as half, then headroom as none; its return makes everything fresh again."""
    story = Story()
    story.begin(fast="4090", slow="3060")
    nodes = ["fast", "slow"]
    for seconds in (1.0, 7.0, 21.0):
        story.at(seconds).ask("prioritize", f"at-{seconds:.0f}", nodes)
    story.at(40.0).tell(story.live("fast", 80.0, 6000))
    story.tell(story.live("slow", 5.0, 12000))
    story.at(41.0).ask("prioritize", "after", nodes)
    return story


def disorder() -> Story:
    """Repeats, late events, objects and requests that make no sense, an attempt left open: counted, no harm done."""
    story = Story()
    story.begin(fast="4090", slow="3060")
    story.at(1.0)
    old, new = story.live("fast", 99.0, 100), story.live("fast", 10.0, 20000)
    for event in (new, old, new):
        story.tell(event)
    story.tell(KubeDelta(plural="pods", action="ADDED", object={"metadata": {"name": "odd", "annotations": []}}))
    story.tell(KubeDelta(plural="nodes", action="MODIFIED", object={
        "metadata": {"name": "slow", "annotations": {"flexinfer.ai/cost": "a lot"}}}))  # fmt: skip
    story.tell(Webhook(path="filter", body="{"))
    story.at(1.5).ask("filter", "absurd", ["fast", "slow", "ghost", "fast"], vram="-1")
    story.at(3.6).tell(Tick())
    story.tell(story.event("slow", NodeStatus(node="slow", state="draining")))
    story.ask("filter", "last", ["fast", "slow"], vram="19000")
    return story


def shelves() -> Story:
    """Weights that are on a node already decide between equals, not against a card six times as fast; under trial,
    without them, the other would lead."""
    story = Story(weight_cache=0.2, shadow_weights="cache=0")
    story.begin(a="4090", b="4090", slow="3060")
    model = CachedModel(entry="llama3-0123456789ab", source="hf://llama3", bytes=5_000_000_000)
    for node, kind, held in (("a", "4090", ()), ("b", "4090", (model,)), ("slow", "3060", (model,))):
        story.tell(story.event(node, NodeHardware(node=node, devices=(card(node, kind),), cached=held)))
    story.at(1.0).ask("prioritize", "equals", ["a", "b"], entries=model.entry)
    story.at(7.0).ask("prioritize", "unequal", ["a", "slow"], entries=model.entry)
    story.at(13.0).ask("prioritize", "parts", ["a", "b"], entries=f"{model.entry},adapter-9")
    story.at(19.0).ask("prioritize", "none", ["a", "b"])
    return story


STORIES = {"burst": burst, "silence": silence, "disorder": disorder, "shelves": shelves}


def encoded(story: Story) -> bytes:
    """The tape as bytes."""
    header = Header(
        tape="flexinfer", version=1, component="scheduler", instance="by-hand", release="0", started=START,
        settings=story.settings,
    )  # fmt: skip
    return b"".join(line + b"\n" for line in (msgspec.json.encode(header), *_lines(story)))


def _lines(story: Story) -> Iterator[bytes]:
    return (encode_line(at, fact) for at, fact in story.lines)


def golden(tape: Path) -> bytes:
    """Answers and decisions of a tape, readable in a diff."""
    found = replay(read_tape(tape))
    shown = {
        "answers": [{"phase": phase, "answer": msgspec.json.decode(body)} for phase, body in found.answers],
        "decisions": found.decisions,
    }
    return msgspec.json.format(msgspec.json.encode(shown, order="deterministic"), indent=1) + b"\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, story in STORIES.items():
        tape = FOLDER / f"{name}.jsonl"
        if not tape.exists():
            tape.write_bytes(encoded(story()))
        (FOLDER / f"{name}.golden.json").write_bytes(golden(tape))


if __name__ == "__main__":
    main()
