"""The whole system as processes that can be broken one by one, with a breakable link between each two."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import yaml

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.kubernetes import CRDS, NAMESPACES, NODES
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.local.processes import die_with_parent
from flexinfer.ports import KubeUnavailable
from flexinfer.runtime.clock import SystemClock
from tests.faults.links import Link
from tests.faults.programs import PATIENCE, Program, ours, part

TOKEN = "walk-token"
NODE = "box"  # of the real agent: this machine
GPUS = 3  # of each virtual machine

FLEET = """
seed: 3
nodes:
  - name: {name}
    gpus:
      - {{vendor: AMD, product: Radeon RX 7900 XTX, arch: gfx1100, memory: 24Gi, driver: "6.12.12", count: {gpus}}}
    cpu: {{model: AMD Ryzen 9 7900, threads: 24, memory: 64Gi}}
    speed: {{tokens_per_second: 400, first_token: 5ms}}
"""


class House:
    """``start`` brings everything up; ``programs`` and ``links`` are there to be broken."""

    def __init__(self, folder: Path, *, record: bool = False) -> None:
        self.folder = folder
        self.tapes = folder / "tapes"
        self._record = record
        self.nats = NatsServer(folder / "nats", spawn=_spawn)
        self.programs: dict[str, Program] = {}
        self.links: dict[str, Link] = {}
        self.ports: dict[str, int] = {}
        self._stack = AsyncExitStack()

    async def start(self) -> "House":
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def _start(self) -> None:
        await self.nats.start()
        self._stack.push_async_callback(self.nats.kill)
        self.ports["api"] = free_port()
        api = self._add("api", part("api"), str(self.folder / "api"), str(self.ports["api"]), TOKEN)
        await api.start()
        self.kube = await KubeClient.connect(self._kubeconfig("direct", self.ports["api"]), timeout=30.0)
        self._stack.push_async_callback(self.kube.aclose)
        await self.api_answers()
        for crd in crd_manifests():
            await self.kube.patch(CRDS, crd["metadata"]["name"], crd, kind="apply", field_manager="walk")
        await self.kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        await self.kube.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {}})
        self.bus = await NatsBus.start(self.nats.url, name="watcher", clock=SystemClock())
        self._stack.push_async_callback(self.bus.close)
        await self._compose()
        await asyncio.gather(*(program.start() for program in self.programs.values() if not program.running))
        await self.ready()

    async def _compose(self) -> None:
        for name in ("manager-a", "manager-b", "proxy-a", "proxy-b", "scheduler", "agent"):
            self.ports[name] = free_port()
        for name in ("manager-a", "manager-b"):
            # The address of the bus that benchmarks use is no part of what is broken: they have links of their own.
            self._add(
                name, ours("flexinfer-manager"), *await self._kube(name), *await self._bus(name), *self._tape(),
                "--metrics-host", "127.0.0.1", "--metrics-port", str(self.ports[name]), "--node-local",
                "--proxy-url", self.proxy_url("proxy-a"), "--bench-nats-url", self.nats.url, ops=self.ports[name],
            )  # fmt: skip
        for name in ("proxy-a", "proxy-b"):
            self._add(
                name, ours("flexinfer-proxy"), *await self._bus(name), "--host", "127.0.0.1", "--port",
                str(self.ports[name]), "--instance", name, "--accept-timeout", "0s", ops=self.ports[name],
            )  # fmt: skip
        self._add(
            "scheduler", ours("flexinfer-sched"), *await self._kube("scheduler"), *await self._bus("scheduler"),
            *self._tape(), "--host", "127.0.0.1", "--port", str(self.ports["scheduler"]), ops=self.ports["scheduler"],
        )  # fmt: skip
        self._add(
            "agent", ours("flexinfer-agent"), *await self._kube("agent"), *await self._bus("agent"), "--node-name",
            NODE, "--metrics-host", "127.0.0.1", "--metrics-port", str(self.ports["agent"]), ops=self.ports["agent"],
        )  # fmt: skip
        for name in ("machine-a", "machine-b"):
            fleet = self.folder / f"{name}.yaml"
            fleet.write_text(FLEET.format(name=name, gpus=GPUS))
            [_, kubeconfig], [_, url] = await self._kube(name), await self._bus(name)
            self._add(name, part("machine"), str(fleet), kubeconfig, url, str(self.folder / name))
        [_, kubeconfig] = await self._kube("placer")
        self._add("placer", part("placer"), kubeconfig, f"http://127.0.0.1:{self.ports['scheduler']}")

    def _add(self, name: str, command: tuple[str, ...], *args: str, ops: int = 0) -> Program:
        log = self.folder / f"{name}.log"
        self.programs[name] = Program(name, (*command, *args), log, ops)
        self._stack.push_async_callback(self.programs[name].kill)
        return self.programs[name]

    def proxy_url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def _tape(self) -> tuple[str, ...]:
        return ("--record", str(self.tapes)) if self._record else ()

    async def _link(self, name: str, target: int) -> Link:
        link = self.links[name] = await Link(target).start()
        self._stack.push_async_callback(link.stop)
        return link

    async def _kube(self, name: str) -> tuple[str, str]:
        link = await self._link(f"{name}-api", self.ports["api"])
        return "--kubeconfig", str(self._kubeconfig(name, link.port))

    async def _bus(self, name: str) -> tuple[str, str]:
        link = await self._link(f"{name}-bus", self.nats.port)
        return "--nats-url", f"nats://127.0.0.1:{link.port}"

    def _kubeconfig(self, name: str, port: int) -> Path:
        path = self.folder / f"kubeconfig-{name}"
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "walk",
            "clusters": [{"name": "walk", "cluster": {"server": f"http://127.0.0.1:{port}/{TOKEN}"}}],
            "users": [{"name": "walk", "user": {"token": TOKEN}}],
            "contexts": [{"name": "walk", "context": {"cluster": "walk", "user": "walk"}}],
        }))  # fmt: skip
        return path

    async def api_answers(self) -> None:
        """Wait for the API server."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(KubeUnavailable):
                    await self.kube.list(NODES)
                    return
                await asyncio.sleep(0.05)

    async def ready(self) -> None:
        """Every process that has probes is ready."""
        await asyncio.gather(*(program.ready() for program in self.programs.values() if program.ops))

    async def mend(self) -> None:
        """Everything runs, thawed, over links that work."""
        for link in self.links.values():
            link.heal()
        if self.nats.process is None or self.nats.process.returncode is not None:
            await self.nats.start()
        self.nats.process.send_signal(signal.SIGCONT)
        for program in self.programs.values():
            if not program.running:
                await program.start()
            program.signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it all; what it made in ``folder`` stays."""
        for program in self.programs.values():
            program.signal(signal.SIGCONT)
        for name in ("machine-a", "machine-b"):  # these have children of their own to end
            if name in self.programs:
                await self.programs[name].end()
        await self._stack.aclose()

    def leftovers(self) -> list[str]:
        """Command lines of processes that belong to this house and still run."""
        return [command for pid, command in children_in(self.folder) if pid != os.getpid()]


def children_in(folder: Path, word: str = "") -> list[tuple[int, str]]:
    """Processes that have ``folder`` in command line, environment or directory, and ``word`` in the command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            told = command + environ + bytes((entry / "cwd").readlink())
        except OSError:
            continue
        if str(folder).encode() in told and word.encode() in command:
            found.append((int(entry.name), command.replace(b"\0", b" ").decode(errors="replace")))
    return found


async def _spawn(*argv: str, **options: object) -> asyncio.subprocess.Process:
    assert sys.platform == "linux"
    return await asyncio.create_subprocess_exec(*argv, preexec_fn=die_with_parent(), **options)  # type: ignore[arg-type]
