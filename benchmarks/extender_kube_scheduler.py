"""Pods per second of the real kube-scheduler: without an extender, with one that only echoes, and with ours.

On the control plane of tests/cluster: fake nodes with eight GPUs each (known to the API server and, for our extender,
to the bus) and pods that ask for one. For each of the three, in turn and for several rounds, all pods are created
first, then a kube-scheduler is started and timed from the first binding to the last. `--default-limits` leaves
kube-scheduler's own limit of API requests in place (50 per second), otherwise it is raised out of the way.

    python benchmarks/extender_kube_scheduler.py [--nodes 1000] [--pods 1500] [--rounds 2] [--output FILE.json]
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from measuring import machine, measured

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))

from rig import SCHEDULER, Rig

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.web.serve import Receive, Scope, Send, WebServer, listen, read_body, respond
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchCompleted, Device, DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.contracts.kubernetes import NODES, PODS, KubeDelta
from flexinfer.core.hardware.device_class import device_class
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.ports import KubeFact
from flexinfer.runtime.clock import SystemClock

KEY = "llama3-8b-0123456789ab"
CARDS = (("NVIDIA GeForce RTX 4090", "sm_89", 58.0), ("NVIDIA GeForce RTX 3090", "sm_86", 40.0))
GPUS = 8
AT_ONCE = 32
MODES = ("none", "echo", "flexinfer")


class _Names(msgspec.Struct):
    names: msgspec.Raw = msgspec.field(name="NodeNames")


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """The least an extender can do: every node passes, every score is 0."""
    if scope["type"] != "http":
        return
    raw = msgspec.json.decode(await read_body(receive, 1 << 30) or b"{}", type=_Names).names
    if scope["path"] == "/prioritize":
        names = msgspec.json.decode(raw, type=list[str])
        await respond(send, 200, msgspec.json.encode([{"Host": name, "Score": 0} for name in names]))
    else:
        await respond(send, 200, b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{},"Error":""}' % bytes(raw))


async def each(items: list[Any], work: Any) -> None:
    """``work(item)`` for all, AT_ONCE at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> None:
        async with gate:
            await work(item)

    await asyncio.gather(*(one(item) for item in items))


class Bench:
    """A control plane, a bus and both extenders."""

    def __init__(self, rig: Rig, api: KubeClient, bus: NatsBus, urls: dict[str, str]) -> None:
        self._rig = rig
        self._api = api
        self._bus = bus
        self._urls = urls

    async def nodes(self, count: int) -> None:
        async def one(number: int) -> None:
            name = f"node-{number:05d}"
            await self._tell(name, number)
            await self._api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
            since = "2026-01-01T00:00:00Z"
            ready = {
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": since, "lastTransitionTime": since,
            }  # fmt: skip
            status = {"capacity": room, "allocatable": room, "conditions": [ready]}
            await self._api.patch(NODES, name, {"status": status}, kind="merge", subresource="status")
            await self._api.patch(NODES, name, {"spec": {"taints": []}}, kind="merge")

        await each(list(range(count)), one)
        for product, arch, speed in CARDS:
            card = Device(index=0, uuid="x", vendor="NVIDIA", product=product, arch=arch, memory_mib=24564)
            result = BenchCompleted(
                key=f"k-{arch}", namespace="default", model="m", workload=KEY, source="s", backend="vllm",
                device_class=device_class(card, 1), tokens_per_second=speed, iterations=1, duration_seconds=1.0,
            )  # fmt: skip
            await self._bus.publish(EventMint.start("bench", arch, "boot", SystemClock().now).mint(result))

    async def _tell(self, name: str, number: int) -> None:
        product, arch, _ = CARDS[number % len(CARDS)]
        mint = EventMint.start("agent", name, "boot", SystemClock().now)
        devices = tuple(
            Device(index=n, uuid=f"{name}-{n}", vendor="NVIDIA", product=product, arch=arch, memory_mib=24564)
            for n in range(GPUS)
        )
        live = tuple(
            DeviceTelemetry(index=n, uuid=f"{name}-{n}", util_percent=float(number % 40), memory_free_mib=24000)
            for n in range(GPUS)
        )
        await self._bus.publish(mint.mint(NodeHardware(node=name, devices=devices)))
        await self._bus.publish(mint.mint(NodeTelemetry(node=name, interval_seconds=600.0, devices=live)))

    async def run(self, mode: str, pods: int, *, limits: bool) -> float:
        """Pods per second from the first binding to the last."""

        async def one(number: int) -> None:
            resources = {"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": "1"}}
            annotations = {"flexinfer.ai/benchmark-key": KEY, "flexinfer.ai/gpu.vram-estimate-mb": "9000"}
            await self._api.create(PODS, {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": f"pod-{number:05d}", "annotations": annotations},
                "spec": {"schedulerName": "flexinfer-scheduler", "terminationGracePeriodSeconds": 0,
                         "containers": [{"name": "c", "image": "engine", "resources": resources}]},
            }, "default")  # fmt: skip

        await each(list(range(pods)), one)
        times = await self._timed(mode, pods, limits=limits)
        self._rig.kill("kube-scheduler")
        names = [pod["metadata"]["name"] for pod in (await self._api.list(PODS, "default")).items]
        await each(names, lambda name: self._api.delete(PODS, name, "default", grace_seconds=0))
        return (pods - 1) / (times[-1] - times[0])

    async def _timed(self, mode: str, pods: int, *, limits: bool) -> list[float]:
        clock, times, done = SystemClock(), list[float](), asyncio.Event()
        seen: set[str] = set()

        def sink(fact: KubeFact) -> None:
            if isinstance(fact, KubeDelta) and fact.object["spec"].get("nodeName") and fact.name not in seen:
                seen.add(fact.name)
                times.append(clock.monotonic())
                if len(seen) >= pods:
                    done.set()

        informer = Informer(self._api, PODS, sink, "default")
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(informer.run())
            await informer.wait_synced()
            options: dict[str, Any] = {"extenders": []} if mode == "none" else {}
            if not limits:
                options["clientConnection"] = {
                    "kubeconfig": str(self._rig.kubeconfig(SCHEDULER)), "qps": 10000, "burst": 10000,
                }  # fmt: skip
            self._rig.start_scheduler(self._urls.get(mode, ""), options=options)
            await done.wait()
            watching.cancel()
        return times


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="flexinfer-bench-"))
    async with AsyncExitStack() as stack:
        rig = Rig(folder / "rig").start()
        stack.callback(rig.stop)
        server = NatsServer(folder / "nats")
        await server.start()
        stack.push_async_callback(server.stop)
        bus = await NatsBus.start(server.url, name="bench")
        stack.push_async_callback(bus.close)
        api = await KubeClient.connect(rig.kubeconfig(), timeout=60.0)
        stack.push_async_callback(api.aclose)
        connected = asyncio.Event()
        bus.on_connect(connected.set)
        await connected.wait()
        await bus.ensure()
        echoing = await WebServer(echo, listen("127.0.0.1", 0)).start()
        stack.push_async_callback(echoing.stop)
        port = free_port()
        urls = {"echo": f"http://127.0.0.1:{echoing.port}", "flexinfer": f"http://127.0.0.1:{port}"}
        bench = Bench(rig, api, bus, urls)
        await bench.nodes(options.nodes)
        # It would taint nodes that no kubelet renews, and its work is none of kube-scheduler's.
        rig.kill("kube-controller-manager")
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "flexinfer-sched"), "--host", "127.0.0.1", "--port", str(port),
            "--nats-url", server.url, "--kubeconfig", str(rig.kubeconfig()),
        )  # fmt: skip
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
        async with aiohttp.ClientSession() as session:
            for _ in range(600):
                with suppress(aiohttp.ClientError):
                    async with session.get(urls["flexinfer"] + "/readyz") as response:
                        if response.status == 200:
                            break
                await asyncio.sleep(0.1)
        rates: dict[str, list[float]] = {mode: [] for mode in MODES}
        for number in range(options.rounds):
            for mode in MODES:
                rate = await bench.run(mode, options.pods, limits=options.default_limits)
                rates[mode].append(round(rate, 1))
                print(f"round {number + 1} {mode}: {rate:.1f} pods/s", flush=True)
    medians = {mode: statistics.median(found) for mode, found in rates.items()}
    return {
        "machine": machine(),
        "method": (__doc__ or "").strip(),
        "nodes": options.nodes, "pods": options.pods, "default_limits": options.default_limits, "rounds": rates,
        "pods_per_second": medians, "flexinfer_to_echo": round(medians["flexinfer"] / medians["echo"], 3),
        "flexinfer_to_none": round(medians["flexinfer"] / medians["none"], 3),
    }  # fmt: skip


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--nodes", type=int, default=1000)
    command.add_argument("--pods", type=int, default=1500)
    command.add_argument("--rounds", type=int, default=2)
    command.add_argument("--default-limits", action="store_true")
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found = measured(measure(options), options.output)
    print({key: found[key] for key in ("pods_per_second", "flexinfer_to_echo", "flexinfer_to_none")})


if __name__ == "__main__":
    main()
