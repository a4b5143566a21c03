"""The executable itself: a real bus, the embedded API, readiness, metrics, SIGTERM; and two of them with one lease."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Cpu, NodeHardware
from flexinfer.contracts.kubernetes import CRDS, JOBS, LEASES, MODELDEPLOYMENTS, NODES
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.ports import NotFound
from flexinfer.runtime.clock import SystemClock

SPEC = {"backend": "llamacpp", "model": "file:///m/x.gguf", "gpu": {"vendor": "cpu"}}


class Site:
    """Bus, API and the managers started here."""

    def __init__(self, nats: NatsServer, kubeconfig: Path, api: KubeClient) -> None:
        self.nats = nats
        self.kubeconfig = kubeconfig
        self.api = api
        self.managers: list[asyncio.subprocess.Process] = []

    async def manager(self, *more: str) -> tuple[asyncio.subprocess.Process, int]:
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "flexinfer-manager"), "--kubeconfig", str(self.kubeconfig),
            "--nats-url", self.nats.url, "--metrics-host", "127.0.0.1", "--metrics-port", str(port),
            "--log-format", "json", *more, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.managers.append(process)
        return process, port

    async def apply(self, name: str = "m") -> None:
        body = {
            "apiVersion": MODELDEPLOYMENTS.api_version, "kind": MODELDEPLOYMENTS.kind,
            "metadata": {"name": name, "namespace": "default"}, "spec": SPEC,
        }  # fmt: skip
        await self.api.create(MODELDEPLOYMENTS, body, "default")

    async def jobs(self, count: int) -> Any:
        async with asyncio.timeout(30):
            while len(found := (await self.api.list(JOBS, "default")).items) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    nats = NatsServer(tmp_path / "nats")
    await nats.start()
    server = await EmbeddedApi().start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    api = await KubeClient.connect(tmp_path / "kubeconfig")
    for crd in crd_manifests():
        await api.patch(CRDS, crd["metadata"]["name"], crd, kind="apply", field_manager="test")
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    bus = await NatsBus.start(nats.url, name="agent", clock=SystemClock())
    mint = EventMint.start("agent", "n1", "b1", SystemClock().now)
    await bus.publish(mint.mint(NodeHardware(node="n1", cpu=Cpu(model="X", threads=2, memory_mib=8000))))
    found = Site(nats, tmp_path / "kubeconfig", api)
    yield found
    for process in found.managers:
        if process.returncode is None:
            process.kill()
        await process.communicate()
    await bus.close()
    await api.aclose()
    await server.stop()
    await nats.stop()


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def ready(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await get(port, "/readyz"))[0] == 200:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_it_becomes_ready_works_and_stops_on_sigterm(site: Site) -> None:
    process, port = await site.manager("--leader-elect", "false")
    await ready(port)
    await site.apply()
    await site.jobs(1)
    assert 'flexinfer_controller_reconciles_total{result="done"}' in (await get(port, "/metrics"))[1]

    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(process.communicate(), 15)
    assert process.returncode == 0
    assert b"Traceback" not in errors


async def test_no_bus_address_is_one_sentence(site: Site) -> None:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "flexinfer-manager"), "--kubeconfig", str(site.kubeconfig),
        env={"PATH": "/usr/bin"}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()

    assert process.returncode == 2
    assert errors.decode() == "flexinfer-manager: no bus address; give --nats-url or NATS_URL\n"


async def test_one_of_two_leads_and_the_other_takes_over_without_doing_anything_twice(site: Site) -> None:
    first, first_port = await site.manager()
    await ready(first_port)
    await site.apply("a")
    await site.jobs(1)
    _, second_port = await site.manager()
    await ready(second_port)
    before = (await site.api.get(LEASES, "flexinfer-manager", "flexinfer-system"))["spec"]["holderIdentity"]

    first.send_signal(signal.SIGTERM)  # gives the lease back
    await asyncio.wait_for(first.communicate(), 15)
    body = {"spec": {**SPEC, "args": ["--threads", "1"]}}
    await site.api.patch(MODELDEPLOYMENTS, "a", body, "default")
    async with asyncio.timeout(40):
        while True:
            try:
                found = await site.jobs(1)
                if len(found) == 1 and "--threads" in str(found):
                    break
            except NotFound:
                pass
            await asyncio.sleep(0.1)
    after = (await site.api.get(LEASES, "flexinfer-manager", "flexinfer-system"))["spec"]["holderIdentity"]
    assert before != after
