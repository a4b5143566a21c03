"""What the control plane costs while nothing happens: a hundred models serve, one endpoint each.

On the control plane of tests/cluster, with fake nodes and a kubelet that only pretends: a real NATS server with users
and TLS off, and as many processes as the chart starts by default: manager, extender, a kube-scheduler that asks it, two
proxies, dashboard; and the webhook. The manager brings the models to Running; then everything is left alone for
``--seconds`` but for what goes on in any cluster: agents tell telemetry every 2 s and hardware as a heartbeat, kubelets
ask each process for /readyz and /healthz as often as the chart's probes do, Prometheus for /metrics every 15 s.

Processor time is user plus system of each process from /proc/<pid>/stat; memory is its proportional set size (pages
that processes share are counted once in the sum) and its resident set size (counted in each), at the end.

Goals: under half a core, and 800 MB, all together.

    python benchmarks/control_plane_idle.py [--endpoints 100] [--seconds 60] [--output FILE.json]
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
import urllib.request
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))

import trustme
from agent_footprint import cpu_seconds, resident_mb
from manager_models import MANAGER_TOKEN, MANAGER_USER, Bench, QuietRig, prepared
from measuring import machine, measured
from rig import SCHEDULER

from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.runtime.tasks import Supervisor

GOALS = {"cores": 0.5, "memory_mb": 800.0}
CARDS, NODES_OF = 8, 20  # of each fake node; Bench makes a node for so many models
WARM_UP = 15.0
READY, ALIVE, SCRAPED, TOLD = 2.0, 10.0, 15.0, 2.0  # seconds between two probes, scrapes, tellings
DEADLINE = 120.0


@dataclass(frozen=True)
class Part:
    """One process and the plain port of its ops endpoints, 0 for none."""

    name: str
    pid: int
    port: int = 0


class Plane:
    """The processes, started one by one and ended together."""

    def __init__(self, rig: QuietRig, nats_url: str, folder: Path) -> None:
        self._rig, self._nats_url, self._folder = rig, nats_url, folder
        self._processes: list[asyncio.subprocess.Process] = []
        self.parts: list[Part] = []

    async def run(self, name: str, *args: str, program: str, port: int) -> None:
        """Start one of ours, return when it is ready."""
        with (self._folder / f"{name}.log").open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).parent / program), *args, stdout=out, stderr=out,
                env={**os.environ, "NATS_URL": self._nats_url, "FLEXINFER_LOG_FORMAT": "json"},
            )  # fmt: skip
        self._processes.append(process)
        self.parts.append(Part(name, process.pid, port))
        async with asyncio.timeout(DEADLINE):
            while not await asyncio.to_thread(answers, port, "/readyz"):  # noqa: ASYNC110 - a process tells no event
                await asyncio.sleep(0.2)

    async def start(self) -> None:
        """In the order of what needs what."""
        local = ("--metrics-host", "127.0.0.1", "--metrics-port")
        kubeconfig = ("--kubeconfig", str(self._rig.kubeconfig(MANAGER_TOKEN)))
        port = free_port()
        await self.run("manager", *kubeconfig, *local, str(port), program="flexinfer-manager", port=port)
        extender = free_port()
        scheduler = ("--kubeconfig", str(self._rig.kubeconfig(SCHEDULER)), "--host", "127.0.0.1", "--port")
        await self.run("extender", *scheduler, str(extender), program="flexinfer-sched", port=extender)
        self._rig.start_scheduler(f"http://127.0.0.1:{extender}")
        self.parts.append(Part("kube-scheduler", self._rig.processes["kube-scheduler"].pid))
        for number in (1, 2):
            port = free_port()
            own = ("--host", "127.0.0.1", "--port", str(port), "--instance", f"proxy-{number}")
            await self.run(f"proxy {number}", *own, program="flexinfer-proxy", port=port)
        port = free_port()
        await self.run(
            "dashboard", "--host", "127.0.0.1", "--port", str(port), program="flexinfer-dashboard", port=port
        )
        await self._webhook()

    async def _webhook(self) -> None:
        certificate = trustme.CA().issue_cert("127.0.0.1")
        cert, key = self._folder / "webhook.crt", self._folder / "webhook.key"
        certificate.cert_chain_pems[0].write_to_path(cert)
        certificate.private_key_pem.write_to_path(key)
        port = free_port()
        args = ("--host", "127.0.0.1", "--port", "0", "--metrics-port", str(port), "--tls-cert", str(cert))
        await self.run("webhook", *args, "--tls-key", str(key), program="flexinfer-webhook", port=port)

    async def stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            await process.wait()


def answers(port: int, path: str) -> bool:
    """Whether the page is there, read whole."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            answer.read()
            return bool(answer.status == 200)
    except OSError:
        return False


def listed(port: int) -> list[Any]:
    """Models that a proxy offers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
        return list(json.load(answer)["data"])


def proportional_mb(pid: int) -> float:
    """Pss in MB (10^6)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024 / 1e6


async def _asked(parts: list[Part]) -> None:
    """By kubelets and Prometheus, until cancelled."""

    async def every(seconds: float, port: int, path: str) -> None:
        while True:
            await asyncio.to_thread(answers, port, path)
            await asyncio.sleep(seconds)

    pages = ((READY, "/readyz"), (ALIVE, "/healthz"), (SCRAPED, "/metrics"))
    async with asyncio.TaskGroup() as group:
        for part in parts:
            for seconds, path in pages if part.port else ():
                group.create_task(every(seconds, part.port, path))


async def _routable(plane: Plane, endpoints: int) -> None:
    """Both proxies list every model."""
    for port in [part.port for part in plane.parts if part.name.startswith("proxy")]:
        async with asyncio.timeout(DEADLINE):
            while len(await asyncio.to_thread(listed, port)) < endpoints:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.2)


async def _told(bench: Bench) -> None:
    while True:
        await bench.tell()
        await asyncio.sleep(TOLD)


async def _idle(parts: list[Part], seconds: float) -> dict[str, dict[str, float]]:
    await asyncio.sleep(WARM_UP)
    before = {part.pid: sum(cpu_seconds(part.pid)) for part in parts}
    began = time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    return {
        part.name: {
            "cores": round((sum(cpu_seconds(part.pid)) - before[part.pid]) / passed, 4),
            "proportional_mb": round(proportional_mb(part.pid), 1),
            "resident_mb": round(resident_mb(part.pid), 1),
        }
        for part in parts
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures, as they are written to the file."""
    folder = Path(tempfile.mkdtemp(prefix="flexinfer-bench-"))
    async with AsyncExitStack() as stack:
        rig = QuietRig(folder / "rig", tokens={MANAGER_TOKEN: (MANAGER_USER, "system:masters")}).start()
        stack.callback(rig.stop)
        nats = await NatsServer(folder / "nats").start()
        stack.push_async_callback(nats.stop)
        bench = await prepared(rig, nats.url, NODES_OF * -(-options.endpoints // CARDS), stack)
        bench.models = options.endpoints
        plane = Plane(rig, nats.url, folder)
        stack.push_async_callback(plane.stop)
        await plane.start()
        assert nats.process is not None
        parts = [*plane.parts, Part("nats-server", nats.process.pid)]
        await bench.round("idle")
        await _routable(plane, options.endpoints)
        around = Supervisor("around")
        stack.push_async_callback(around.close)
        around.forever("agents", lambda: _told(bench))
        around.forever("probes", lambda: _asked(parts))
        found = await _idle(parts, options.seconds)
    total = {key: round(sum(one[key] for one in found.values()), 3) for key in next(iter(found.values()))}
    return {
        "machine": machine(),
        "endpoints": options.endpoints, "nodes": len(bench.nodes), "seconds": options.seconds,
        "parts": found, "total": total, "goals": GOALS,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = measured(measure(options), options.output)
    for name, row in (*found["parts"].items(), ("together", found["total"])):
        print(
            f"{name:15} {row['cores']:7.4f} cores {row['proportional_mb']:7.1f} MB (resident {row['resident_mb']:.1f})"
        )
    print(f"goals: {GOALS['cores']} cores, {GOALS['memory_mb']:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
