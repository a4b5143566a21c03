"""The agent's loops on fakes: what reaches the bus, what is written to the Node, what is asked of engines."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import Cpu, NodeHardware, NodeStatus, NodeTelemetry, PodMismatch
from flexinfer.contracts.kubernetes import NODES, KubeDelta
from flexinfer.core.hardware.engine_pods import EnginePod
from flexinfer.core.hardware.findings import Attempt, Fault, Findings, Live, Unit
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.notices import Notice
from flexinfer.ports import Forbidden, KubeUnavailable, NotFound, Relisted
from flexinfer.runtime.agent import telling
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.cloud import CloudNotices
from flexinfer.runtime.agent.engines import EngineWatch
from flexinfer.runtime.agent.noticing import Noticer
from flexinfer.runtime.agent.pods import PodWatch
from flexinfer.runtime.agent.probing import Prober
from flexinfer.runtime.agent.projecting import Projector
from flexinfer.runtime.agent.telling import Teller
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor
from flexinfer.telemetry import metrics

P = "flexinfer.ai/"
DEADLINE = 60.0


class Hands:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Wire:
    """A bus that keeps what was published."""

    connected = True

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.grown = asyncio.Event()

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        self.events.append(event)
        self.grown.set()

    async def until(self, count: int, kind: type) -> list[Any]:
        async with asyncio.timeout(DEADLINE):
            while len(found := [e.data for e in self.events if isinstance(e.data, kind)]) < count:
                self.grown.clear()
                await self.grown.wait()
        return found


class Api:
    """A Kubernetes API with one Node; every other call than get and patch of it fails the test."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.node = node
        self.patches: list[dict[str, Any]] = []
        self.error: Exception | None = None

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> dict[str, Any]:
        if self.error:
            raise self.error
        return self.node

    async def patch(self, resource: Any, name: str, body: Any, namespace: Any = None, *, kind: str) -> dict[str, Any]:
        assert (resource, name, kind) == (NODES, "n1", "merge")
        assert set(body) == {"metadata"}
        assert set(body["metadata"]) <= {"labels", "annotations"}
        if self.error:
            raise self.error
        self.patches.append(body["metadata"])
        meta = dict(self.node["metadata"])
        for part, changes in body["metadata"].items():
            merged = {**meta.get(part, {}), **changes}
            meta[part] = {key: value for key, value in merged.items() if value is not None}
        self.node = {"metadata": meta}
        return self.node


def unit(at: int = 0, **fields: Any) -> Unit:
    values = {
        "vendor": "NVIDIA", "index": at, "uuid": f"GPU-{at}", "source": "nvml", "arch": "sm_89", "memory_mib": 24564,
        "memory_type": "dedicated", "live": Live(util_percent=10.0, memory_free_mib=20000, temperature_celsius=50.0),
    } | fields  # fmt: skip
    return Unit(**values)


class Source:
    """Hardware that says what the test tells it to."""

    vendor = "NVIDIA"

    def __init__(self, found: Findings, period: float | None = 0.0) -> None:
        self.found = found
        self.period = period
        self.live: Mapping[str, Live] | None = {}
        self.probes = 0
        self.hang: asyncio.Event | None = None

    async def find(self) -> Findings:
        self.probes += 1
        if self.hang:
            await self.hang.wait()
        return self.found

    async def sample(self) -> Mapping[str, Live] | None:
        return self.live


def board(interval: float = 30.0, telemetry: float = 2.0, prefix: str = P) -> Board:
    return Board(Station("n1", prefix, "0.0.0", interval, telemetry), Cpu(threads=4))


def teller(on: Board, wire: Wire | None, clock: Any) -> Teller:
    return Teller(on, EventMint.start("agent", "n1", "boot", clock.now), wire, clock)


@pytest.fixture
async def tasks() -> Any:
    supervisor = Supervisor("test")
    yield supervisor
    await supervisor.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not true():  # noqa: ASYNC110 - the condition is state without an event
            await asyncio.sleep(0.005)


# --- bus -------------------------------------------------------------------------------------------------------


async def test_hardware_is_told_at_start_on_change_and_now_and_then(
    tasks: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    on, wire, clock = board(), Wire(), Hands()
    tasks.once("hardware", teller(on, wire, clock).hardware())
    on.settle([Findings("NVIDIA", (unit(0),))])
    first = await wire.until(1, NodeHardware)
    on.settle([Findings("NVIDIA", (unit(0), unit(1)))])
    both = await wire.until(2, NodeHardware)
    on.settle([Findings("NVIDIA", (unit(0, live=Live()), unit(1)))])

    assert [len(event.devices) for event in (first[0], both[1])] == [1, 2]
    assert len(wire.events) == 2

    monkeypatch.setattr(telling, "HARDWARE_EVERY", 0.01)
    on.settle([Findings("NVIDIA", (unit(0),))])
    await wire.until(5, NodeHardware)
    assert [event.seq for event in wire.events][:5] == [1, 2, 3, 4, 5]


async def test_telemetry_comes_each_period_and_at_once_on_a_jump() -> None:
    on, wire, clock = board(telemetry=60.0), Wire(), Hands()
    busy = {"at": 10.0}
    on.settle([Findings("NVIDIA", (unit(0),))])
    mouth = teller(on, wire, clock)
    first = mouth.reading(busy["at"], Memory(1000, 500))
    await mouth.offer(first)
    await mouth.offer(first)
    busy["at"] = 90.0
    await mouth.offer(mouth.reading(busy["at"], Memory(1000, 500)))
    clock.at += 61
    await mouth.offer(mouth.reading(busy["at"], Memory(1000, 500)))

    told = await wire.until(3, NodeTelemetry)
    assert [event.cpu_util_percent for event in told] == [10.0, 90.0, 90.0]
    assert told[0].devices[0].util_percent == 10.0
    assert (told[0].memory_free_mib, told[0].interval_seconds) == (500, 60.0)


async def test_status_is_told_at_transitions_only() -> None:
    on, wire, clock = board(), Wire(), Hands()
    notice: list[Notice | None] = [None]

    async def look() -> Notice | None:
        return notice[0]

    noticer = Noticer(teller(on, wire, clock), [look])
    for said in (None, None, Notice("spot"), Notice("spot"), None):
        notice[0] = said
        await noticer.step()

    told = [(event.data.state, event.data.reason) for event in wire.events if isinstance(event.data, NodeStatus)]
    assert told == [("online", ""), ("draining", "spot"), ("online", "")]


async def test_a_dry_run_keeps_the_board_and_tells_nobody() -> None:
    on, clock = board(), Hands()
    mouth = teller(on, None, clock)
    on.settle([Findings("NVIDIA", (unit(0),))])

    await mouth.offer(mouth.reading(None, Memory()))

    assert on.telemetry


async def test_series_of_a_device_vanish_with_it() -> None:
    on, clock = board(), Hands()
    mouth = teller(on, None, clock)
    on.settle([Findings("NVIDIA", (unit(0), unit(1)))])
    await mouth.offer(mouth.reading(None, Memory()))
    assert metrics.value_of("flexinfer_gpu_temperature_celsius", {"gpu": "1", "node": "n1"}) == 50.0

    on.settle([Findings("NVIDIA", (unit(0, live=Live(temperature_celsius=61.0)),))])
    clock.at += 10
    await mouth.offer(mouth.reading(None, Memory()))

    page = metrics.expose().decode()
    assert 'flexinfer_gpu_temperature_celsius{gpu="0",node="n1"} 61.0' in page
    assert 'gpu="1",node="n1"' not in page
    assert 'flexinfer_gpu_utilization_ratio{gpu="0",node="n1"}' not in page


# --- probes ----------------------------------------------------------------------------------------------------


async def test_a_hanging_vendor_does_not_hold_up_the_other(tasks: Supervisor) -> None:
    on = board(interval=0.3)
    hung, well = Source(Findings("NVIDIA")), Source(Findings("AMD", (unit(0, vendor="AMD", arch="gfx1100"),)))
    hung.hang, well.vendor = asyncio.Event(), "AMD"
    Prober(on, [hung, well], SystemClock()).start(tasks)

    await until(lambda: on.hardware is not None)

    assert on.labels[P + "gpu.vendor"] == "AMD"
    await until(lambda: well.probes > 2)
    assert hung.probes == 1


async def test_samples_renew_figures_between_probes_and_unknown_ones_age(tasks: Supervisor) -> None:
    on = board(interval=60.0, telemetry=0.2)
    source = Source(Findings("NVIDIA", (unit(0),)))
    source.live = {"GPU-0": Live(util_percent=77.0)}
    Prober(on, [source], SystemClock()).start(tasks)

    await until(lambda: bool(on.units) and on.units[0].live.util_percent == 77.0)
    source.live = None
    await until(lambda: on.units[0].live == Live())

    assert source.probes == 1
    assert on.counted == {"GPU-0"}


async def test_probes_are_counted_by_source_and_reason(tasks: Supervisor) -> None:
    failed = Attempt("made-up", "failed", "because", "", 0.1)
    source = Source(Findings("NVIDIA", (), (failed,), Fault("driver-error", "because")))

    prober = Prober(board(), [source], Hands())
    await prober.once(tasks)

    labels = {"source": "made-up", "reason": "because"}
    assert metrics.value_of("flexinfer_agent_probe_errors_total", labels) == 1
    assert metrics.value_of("flexinfer_agent_probe_duration_seconds_count", {"source": "made-up"}) == 1
    assert prober.attempts == (failed,)


# --- Node ------------------------------------------------------------------------------------------------------


def settled(prefix: str = P) -> tuple[Board, Api, Hands, Projector]:
    on, clock = board(prefix=prefix), Hands()
    api = Api({"metadata": {"name": "n1", "labels": {prefix + "gpu.vram": "8Gi", "mine": "1"},
                            "annotations": {prefix + "cost": "2"}}})  # fmt: skip
    projector = Projector(on, api, clock)
    on.settle([Findings("NVIDIA", (unit(0),))])
    return on, api, clock, projector


async def test_one_patch_brings_the_node_up_to_date_and_then_none() -> None:
    on, api, _, projector = settled()
    on.engines = ()
    projector.take(Relisted(plural="nodes", objects=(api.node,)))

    await projector.step()
    await projector.step()

    assert len(api.patches) == 1
    meta = api.node["metadata"]
    assert meta["labels"] == {
        "mine": "1", P + "enabled": "true", P + "gpu.vendor": "NVIDIA", P + "gpu.vram": "24Gi", P + "gpu.arch": "sm_89",
        P + "gpu.int4": "true", P + "gpu.count": "1", P + "gpu.health": "ok", P + "gpu.memory-type": "dedicated",
        P + "cpu.avx512": "false",
    }  # fmt: skip
    shown = {key: value for key, value in meta["annotations"].items() if not key.endswith("gpu-devices")}
    assert shown == {
        P + "cost": "2", P + "gpu.util": "10.00", P + "gpu-free-memory": "20000", P + "kv-cache-usage": "0.0000",
    }  # fmt: skip


async def test_a_label_follows_the_hardware_at_once_and_annotations_wait() -> None:
    on, api, clock, projector = settled()
    projector.take(Relisted(plural="nodes", objects=(api.node,)))
    await projector.step()
    clock.at += 1

    on.settle([Findings("NVIDIA", (unit(0, live=Live(util_percent=90.0)), unit(1)))])
    await projector.step()
    clock.at += 30
    await projector.step()

    assert [sorted(patch) for patch in api.patches] == [["annotations", "labels"], ["labels"], ["annotations"]]
    assert api.patches[1]["labels"] == {P + "gpu.count": "2"}
    assert api.patches[2]["annotations"][P + "gpu.util"] == "50.00"


async def test_a_key_removed_by_somebody_comes_back_and_foreign_edits_stay() -> None:
    _, api, _, projector = settled()
    projector.take(Relisted(plural="nodes", objects=(api.node,)))
    await projector.step()
    meta = api.node["metadata"]
    labels = {key: value for key, value in meta["labels"].items() if key != P + "gpu.arch"}
    edited = {"metadata": {**meta, "labels": {**labels, "theirs": "x", P + "enabled": "false"}}}
    api.node = edited

    projector.take(KubeDelta(plural="nodes", action="MODIFIED", object=edited))
    await projector.step()

    assert api.patches[-1] == {"labels": {P + "gpu.arch": "sm_89"}}


async def test_another_prefix_is_honoured() -> None:
    _, api, _, projector = settled("lab.example/")
    projector.take(Relisted(plural="nodes", objects=(api.node,)))

    await projector.step()

    assert api.node["metadata"]["labels"]["lab.example/gpu.vram"] == "24Gi"
    assert not any(key.startswith(P) for key in api.node["metadata"]["labels"])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Forbidden(403, "Forbidden", "nodes is forbidden"), "patch on nodes"),
        (KubeUnavailable("refused"), "cannot be written"),
        (NotFound(404, "NotFound", "nodes n1"), "cannot be written"),
    ],
)
async def test_a_failing_write_is_said_and_tried_again_later(error: Exception, words: str) -> None:
    _, api, clock, projector = settled()
    projector.take(Relisted(plural="nodes", objects=(api.node,)))
    api.error = error

    await projector.step()
    await projector.step()

    assert projector.problem
    assert words in projector.problem
    assert not api.patches
    api.error = None
    clock.at += 2
    projector.take(Relisted(plural="nodes", objects=(api.node,)))
    await projector.step()
    assert len(api.patches) == 1
    assert projector.problem is None


async def test_without_a_node_object_nothing_is_written() -> None:
    _, api, _, projector = settled()
    projector.take(Relisted(plural="nodes", objects=()))

    await projector.step()

    assert not api.patches
    assert projector.problem == "there is no Node named n1"


# --- pods ------------------------------------------------------------------------------------------------------


def pod(name: str, uid: str, gpus: str = "1", **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "vllm/vllm-openai", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": uid},
        "spec": {"nodeName": "n1", "containers": [container]},
        "status": {"phase": "Running", "podIP": "10.0.0.9"},
    } | more


async def test_a_pod_that_does_not_fit_is_told_once_on_both_sides() -> None:
    on = board()
    noted: list[tuple[Any, ...]] = []
    told: list[PodMismatch] = []

    async def tell(data: PodMismatch) -> None:
        told.append(data)

    watch = PodWatch(on, lambda *args: noted.append(args), tell)
    watch.take(Relisted(plural="pods", objects=(pod("fits", "1"), pod("big", "2", "3"))))
    await watch.check()
    assert not told

    on.settle([Findings("NVIDIA", (unit(0),))])
    await watch.check()
    await watch.check()

    assert [(data.pod, data.reasons) for data in told] == [("big", ("asks for 3 NVIDIA accelerators, the node has 1",))]
    assert noted == [
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": pod("big", "2")["metadata"]}, "Warning", "HardwareMismatch",
            "does not fit node n1: asks for 3 NVIDIA accelerators, the node has 1",
        )
    ]  # fmt: skip

    on.settle([Findings("NVIDIA", (unit(0), unit(1)))])
    await watch.check()
    assert [data.reasons[0][-1] for data in told] == ["1", "2"]


async def test_pods_that_ended_or_were_deleted_are_not_judged() -> None:
    on = board()
    told: list[PodMismatch] = []

    async def tell(data: PodMismatch) -> None:
        told.append(data)

    watch = PodWatch(on, None, tell)
    on.settle([Findings("NVIDIA")])
    over = pod("over", "1", status={"phase": "Succeeded"})
    watch.take(Relisted(plural="pods", objects=(over, pod("gone", "2"))))
    watch.take(KubeDelta(plural="pods", action="DELETED", object=pod("gone", "2")))

    await watch.check()

    assert not told
    assert watch.engines() == {}


async def test_engines_of_the_node_are_read_from_their_own_pages() -> None:
    pages = {
        "http://10.0.0.1:8000/metrics": b'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:num_requests_running 3\n'
        b"vllm:generation_tokens_total 100\n",
        "http://10.0.0.2:8080/metrics": b"llamacpp:requests_processing 1\nllamacpp:tokens_predicted_total 5\n",
        "http://10.0.0.2:8080/slots": b'[{"n_ctx": 100, "is_processing": true, "n_prompt_tokens": 25}]',
        "http://10.0.0.3:80/metrics": b"tgi_batch_current_max_tokens 300\n",
        "http://10.0.0.3:80/info": b'{"max_batch_total_tokens": 1000}',
    }
    asked: list[str] = []

    async def read(url: str) -> bytes | None:
        asked.append(url)
        return pages.get(url)

    def engine(at: int, port: int, backend: str) -> EnginePod:
        return EnginePod(f"u{at}", "ns", f"p{at}", f"http://10.0.0.{at}:{port}", backend, f"m{at}")

    on, clock = board(), Hands()
    pods: dict[str, EnginePod] | None = None
    watch = EngineWatch(on, read, clock, lambda: pods)
    await watch.step()
    assert on.engines is None

    pods = {str(at): engine(at, port, backend) for at, port, backend in
            ((1, 8000, "vllm"), (2, 8080, "llamacpp"), (3, 80, "tgi"), (4, 1, "sglang"))}  # fmt: skip
    await watch.step()
    clock.at += 2
    pages["http://10.0.0.1:8000/metrics"] = pages["http://10.0.0.1:8000/metrics"].replace(b"100", b"300")
    await watch.step()

    assert on.engines
    told = {each.pod: (each.kv_cache_ratio, each.requests_running, each.tokens_per_second) for each in on.engines}
    assert told == {"p1": (0.5, 3, 100.0), "p2": (0.25, 1, 0.0), "p3": (0.3, None, None), "p4": (None, None, None)}
    assert on.figures.kv_ratio == 0.5
    assert asked.count("http://10.0.0.3:80/info") == 1


async def test_a_cloud_is_asked_only_when_named() -> None:
    asked: list[str] = []

    async def read(url: str, headers: Any = None, method: str = "GET") -> bytes | None:
        asked.append(f"{method} {url}")
        return b"token" if method == "PUT" else b'{"action": "stop", "time": "t"}'

    clock = Hands()
    assert await CloudNotices("off", read, clock).look() is None
    assert not asked

    cloud = CloudNotices("aws", read, clock)
    assert await cloud.look() == Notice("EC2 will stop this spot instance at t")
    await cloud.look()
    assert len(asked) == 2
    clock.at += 5
    await cloud.look()
    assert len(asked) == 4
