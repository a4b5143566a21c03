"""An hour of a mixed fleet as events: cards of three vendors, a node that falls silent, models, prices, a failure."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchFailed,
    BenchSample,
    BenchSettings,
    BenchStarted,
    Candidate,
    Cpu,
    CurvePoint,
    Device,
    DeviceTelemetry,
    Endpoint,
    EventData,
    Health,
    Latencies,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
    Phase,
    PlacementDecided,
    Term,
    Vendor,
)
from flexinfer.runtime.journal import Header, encode_line

START = 1_800_000_000.0
EVERY = 20.0  # seconds between two telemetry events of a node
LENGTH = 3600.0
SILENT_FROM = 2400.0
_CARDS: dict[str, tuple[Vendor, str, str, int, float]] = {
    "a100": ("NVIDIA", "NVIDIA A100", "sm_80", 81920, 95.0),
    "l4": ("NVIDIA", "NVIDIA L4", "sm_89", 23034, 38.0),
    "mi300x": ("AMD", "Instinct MI300X", "gfx942", 196608, 110.0),
    "arc": ("INTEL", "Arc A770", "xe-hpg", 16384, 21.0),
}
_WEIGHTS = {"tps": 0.7, "util": -0.2, "cost": -0.1, "kvCache": -0.3, "vramFree": 10.0}


class Day:
    """Mints events of several processes on one clock. ``now`` is Unix seconds."""

    def __init__(self) -> None:
        self.now = START
        self._mints: dict[str, EventMint] = {}

    def say(self, who: str, data: EventData) -> Event:
        """An event of ``component/instance``, now."""
        component, _, instance = who.partition("/")
        mint = self._mints.setdefault(who, EventMint.start(component, instance, "boot-1", lambda: self.now))
        return mint.mint(data)

    def figures(self, name: str, step: int) -> Event:
        """Telemetry of one node."""
        total = _CARDS[name][3]
        busy = (step * 7 + len(name) * 13) % 100
        card = DeviceTelemetry(
            index=0, uuid=f"GPU-{name}", util_percent=float(busy), memory_used_mib=total * busy // 120,
            memory_free_mib=total - total * busy // 120, temperature_celsius=40.0 + busy / 2, power_watts=60.0 + busy,
            throttle=("thermal",) if busy > 95 else (),
        )  # fmt: skip
        return self.say(
            f"agent/{name}",
            NodeTelemetry(
                node=name, interval_seconds=EVERY, devices=(card,), cpu_util_percent=busy / 3, memory_free_mib=50_000,
                kv_cache_ratio=busy / 200,
            ),
        )  # fmt: skip


def hardware(day: Day, name: str) -> Event:
    """What one node is."""
    vendor, product, arch, memory, _ = _CARDS[name]
    bad = Health(state="degraded", reasons=("3 uncorrected memory errors",))
    card = Device(
        index=0, uuid=f"GPU-{name}", vendor=vendor, product=product, arch=arch, memory_mib=memory,
        health=bad if name == "arc" else Health(),
    )  # fmt: skip
    cpu = Cpu(model="EPYC 9354", threads=64, memory_mib=65536, avx512=True)
    return day.say(f"agent/{name}", NodeHardware(node=name, devices=(card,), cpu=cpu, virtual=True))


def result(name: str, model: str = "llama3-8b", cost: float | None = None) -> BenchCompleted:
    """A measurement on one card."""
    speed = _CARDS[name][4]
    curve = tuple(
        CurvePoint(
            concurrency=n, prompt_tokens=64, tokens_per_second=speed * n**0.8,
            per_request_tokens_per_second=speed * n**-0.2, requests=5,
        )
        for n in (1, 4, 8, 16)
    )  # fmt: skip
    first = Latencies(p50=0.08, p95=0.1, p99=0.12)
    return BenchCompleted(
        key=f"{model}-{name}-0123456789ab", namespace="default", model=model, workload=f"{model}-587b0e350b4e",
        source=f"hf://example/{model}", backend="llamacpp", device_class=f"{name}-x1", tokens_per_second=speed,
        iterations=5, duration_seconds=40.0, node=name, virtual=True, spread_percent=6.0, first_token=first,
        curve=curve, cost_per_million_tokens=cost,
    )  # fmt: skip


def candidate(name: str, speed: float, load: float, score: int) -> Candidate:
    """One ranked node; the sum is that of its terms."""
    raw = {"tps": speed, "util": load, "cost": 40.0, "kvCache": load / 2, "vramFree": 0.8}
    terms = tuple(
        Term(
            name=key, value=value, weight=abs(_WEIGHTS[key]), contribution=_WEIGHTS[key] * value, age_seconds=1.5,
            note="measured" if key == "tps" else "",
        )
        for key, value in raw.items()
    )  # fmt: skip
    return Candidate(node=name, score=score, sum=sum(term.contribution for term in terms), terms=terms)


def placed(pod: str, *, degraded: bool = False) -> PlacementDecided:
    """A ranking of three nodes, a fourth is out."""
    found = (candidate("mi300x", 100.0, 20.0, 10), candidate("a100", 86.0, 10.0, 8), candidate("l4", 35.0, 5.0, 3))
    return PlacementDecided(
        namespace="default", pod=pod, pod_uid=f"uid-{pod}", outcome="ranked", demand={"model": "llama3-8b"},
        candidates=found, considered=4, reasons={"flexinfer: device is not healthy": 1}, model="llama3-8b",
        best_sum=found[0].sum, worst_sum=found[2].sum, degraded=degraded,
    )  # fmt: skip


def phase(name: str, previous: Phase | None, message: str = "", *, gone: bool = False) -> ModelPhase:
    """A step of the model's life."""
    steps: dict[str, Phase] = {"p": "Pending", "b": "Benchmarking", "d": "Deploying", "r": "Running", "f": "Failed"}
    return ModelPhase(
        namespace="default", model="llama3-8b", kind="ModelDeployment", phase=steps[name], reason="Walk",
        message=message or f"now {steps[name]}", previous=previous, replicas=1, ready_replicas=int(name == "r"),
        gone=gone,
    )  # fmt: skip


def _beginning(day: Day) -> Iterator[tuple[float, Event]]:
    for name in _CARDS:
        yield 0.0, hardware(day, name)
        yield 0.0, day.say(f"agent/{name}", NodeStatus(node=name, state="online"))


_STORY: tuple[tuple[float, str, EventData], ...] = (
    (120.0, "manager/m", phase("p", None)),
    (140.0, "manager/m", phase("b", "Pending", "measuring 2 device classes")),
    (
        141.0,
        "bench/b",
        BenchStarted(
            key="llama3-8b-mi300x-0123456789ab", namespace="default", model="llama3-8b", device_class="mi300x-x1",
            settings=BenchSettings(), node="mi300x",
        ),
    ),
    *(
        (
            150.0 + 5 * n,
            "bench/b",
            BenchSample(
                key="llama3-8b-mi300x-0123456789ab", iteration=n, warmup=n < 2, concurrency=1, completion_tokens=128,
                duration_seconds=1.2, tokens_per_second=108.0 + n,
            ),
        )
        for n in range(6)
    ),
    (190.0, "bench/b", result("mi300x", cost=0.41)),
    (200.0, "bench/c", result("a100", cost=0.37)),
    (205.0, "bench/d", result("l4", cost=0.22)),
    (
        207.0,
        "bench/e",
        BenchStarted(
            key="llama3-8b-arc-0123456789ab", namespace="default", model="llama3-8b", device_class="arc-x1",
            settings=BenchSettings(), node="arc",
        ),
    ),
    (
        210.0,
        "bench/e",
        BenchFailed(
            key="llama3-8b-arc-0123456789ab", namespace="default", model="llama3-8b", reason="EngineFailed",
            message="the engine ended with code 1", remedy="Look at the pod's log.", device_class="arc-x1",
        ),
    ),
    (220.0, "manager/m", phase("d", "Benchmarking")),
    (230.0, "scheduler/s", placed("llama3-8b-1")),
    (260.0, "manager/m", phase("r", "Deploying", "1 of 1 replica(s) serve")),
    (
        261.0,
        "manager/m",
        ModelEndpoint(
            namespace="default", model="llama3-8b", backend="llamacpp",
            endpoints=(
                Endpoint(
                    url="http://10.0.0.7:8080", pod="llama3-8b-1", node="mi300x", device_class="mi300x-x1",
                    tokens_per_second=110.0,
                ),
            ),
        ),
    ),
    (
        3595.0,
        "proxy/p",
        ModelLoad(namespace="default", model="llama3-8b", proxy="p", outstanding=3, tokens_per_second=212.5),
    ),
    (3580.0, "scheduler/s", placed("llama3-8b-2", degraded=True)),
)  # fmt: skip


def mixed_day() -> list[tuple[float, Event]]:
    """(Unix seconds, event) in order of time; ``l4`` falls silent after 40 minutes."""
    day = Day()
    plan: list[tuple[float, int, str, EventData | None]] = [(at, 1, who, data) for at, who, data in _STORY]
    for step in range(int(LENGTH / EVERY)):
        at = 1.0 + step * EVERY
        plan.extend((at, 0, name, None) for name in _CARDS if name != "l4" or at < SILENT_FROM)
    found = list(_beginning(day))
    moments = [(START + at, event) for at, event in found]
    for at, _, who, data in sorted(plan, key=lambda item: (item[0], item[1], item[2])):
        day.now = START + at
        moments.append((day.now, day.figures(who, int(at / EVERY)) if data is None else day.say(who, data)))
    return moments


def write_tape(path: Path) -> Path:
    """The day as a tape of what was said on the bus."""
    header = Header(
        tape="flexinfer", version=1, component="recorder", instance="by-hand", release="0.1.0", started=START
    )  # fmt: skip

    lines = [msgspec.json.encode(header), *(encode_line(at, event) for at, event in mixed_day())]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path
