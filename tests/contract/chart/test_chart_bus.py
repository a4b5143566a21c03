"""The bus as the chart configures it: a real nats-server with the rendered file, TLS and every credential."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from chart_rendering import Object, Render, one

from flexinfer.adapters.bus.nats import Limits, NatsBus
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import ModelDemand, NodeHardware
from flexinfer.local.nats_server import find_binary
from flexinfer.local.ports import free_port
from flexinfer.ports import BusRefused, BusUnavailable, Snapshot

T = TypeVar("T")

# Who connects with which credential, under the name its executable gives itself.
CLIENTS = {
    "agent": "flexinfer-agent n1.example.com", "manager": "flexinfer-manager flexinfer-controller-1",
    "scheduler": "scheduler", "proxy": "flexinfer-proxy flexinfer-proxy-1", "dashboard": "dashboard",
    "global-proxy": "flexinfer-global-proxy", "viewer": "status",
}  # fmt: skip


class Server:
    def __init__(self, process: asyncio.subprocess.Process, url: str, folder: Path) -> None:
        self.process, self.url, self.folder = process, url, folder

    async def join(self, user: str, cluster: str = "default", limits: Limits | None = None) -> NatsBus:
        bus = await NatsBus.start(
            self.url, name=CLIENTS[user], cluster=cluster, credentials=self.folder / f"{user}.auth",
            ca=self.folder / "ca.crt", limits=limits,
        )  # fmt: skip
        up = asyncio.Event()
        bus.on_connect(up.set)
        await asyncio.wait_for(up.wait(), 60)
        return bus


async def started(objects: list[Object], folder: Path, ports: dict[str, int], number: int = 0) -> Server:
    """One server of the StatefulSet with the rendered configuration; only addresses and paths are those of here."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - one folder
    secrets = {obj["metadata"]["name"]: obj["stringData"] for obj in objects if obj["kind"] == "Secret"}
    for user in CLIENTS:
        (folder / f"{user}.auth").write_text(secrets[f"flexinfer-nats-{user}"]["credentials"])
    for name, content in secrets["flexinfer-nats-tls"].items():
        (folder / name).write_text(content)
    config = one(objects, "ConfigMap", "flexinfer-nats")["data"]["nats.conf"]
    here = {
        "0.0.0.0:4222": f"127.0.0.1:{ports[f'client{number}']}", "0.0.0.0:8222": f"127.0.0.1:{free_port('127.0.0.1')}",
        "/data": str(folder / "data"), "/etc/nats/tls": str(folder),
    }  # fmt: skip
    for peer in range(3 if "route0" in ports else 0):
        name = f"flexinfer-nats-{peer}.flexinfer-nats-headless.flexinfer-system.svc:6222"
        here |= {name: f"127.0.0.1:{ports[f'route{peer}']}", "0.0.0.0:6222": f"127.0.0.1:{ports[f'route{number}']}"}
    for written, instead in here.items():
        assert written in config
        config = config.replace(written, instead)
    (folder / "nats.conf").write_text(config)
    [container] = one(objects, "StatefulSet", "flexinfer-nats")["spec"]["template"]["spec"]["containers"]
    environ = {"POD_NAME": f"flexinfer-nats-{number}"}
    for entry in container["env"][1:]:
        source = entry["valueFrom"]["secretKeyRef"]
        environ[entry["name"]] = secrets[source["name"]][source["key"]]
    process = await asyncio.create_subprocess_exec(
        find_binary(), "--config", str(folder / "nats.conf"), env={**os.environ, **environ}
    )
    return Server(process, f"nats://127.0.0.1:{ports[f'client{number}']}", folder)


async def insisted(attempt: Callable[[], Awaitable[T]]) -> T:
    """Until the servers have chosen who leads; nothing announces that."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await attempt()
            except (BusRefused, BusUnavailable):
                await asyncio.sleep(0.2)


async def ended(servers: list[Server]) -> None:
    for one_server in servers:
        if one_server.process.returncode is None:
            one_server.process.kill()
        await one_server.process.wait()


@pytest.fixture
async def server(render: Render, tmp_path: Path) -> Any:
    made = await started(render(), tmp_path, {"client0": free_port("127.0.0.1")})
    try:
        yield made
    finally:
        await ended([made])


async def test_three_servers_find_each_other_and_keep_three_copies(render: Render, tmp_path: Path) -> None:
    ports = {f"{what}{number}": free_port("127.0.0.1") for what in ("client", "route") for number in range(3)}
    objects = render("--set", "nats.replicas=3")
    servers = [await started(objects, tmp_path / str(number), ports, number) for number in range(3)]
    try:
        manager = await servers[0].join("manager", limits=Limits(replicas=3))
        await insisted(manager.ensure)
        agent, reader = await servers[1].join("agent"), await servers[2].join("dashboard")
        mint = EventMint.start("agent", "n1", "boot", lambda: 1_700_000_000.0)
        await insisted(lambda: agent.publish(mint.mint(NodeHardware(node="n1")), durable=True))
        servers[1].process.kill()  # what was acknowledged is on two others
        await servers[1].process.wait()
        [event] = await insisted(lambda: reader.state((NodeHardware,)))
        assert event.data.node == "n1"
        for bus in (manager, agent, reader):
            await bus.close()
    finally:
        await ended(servers)


async def test_every_credential_gets_in_and_does_its_part(server: Server) -> None:
    buses = {user: await server.join(user) for user in CLIENTS if user != "global-proxy"}
    buses["global-proxy"] = await server.join("global-proxy", cluster="*")
    await buses["manager"].ensure()
    mint = EventMint.start("agent", "n1", "boot", lambda: 1_700_000_000.0)
    await buses["agent"].publish(mint.mint(NodeHardware(node="n1.example.com")), durable=True)
    await buses["proxy"].publish(
        mint.mint(ModelDemand(namespace="a", model="m", proxy="flexinfer-proxy-1", waiting=1)), durable=True
    )
    for reader in ("manager", "scheduler", "dashboard", "viewer", "proxy"):
        [event] = await buses[reader].state((NodeHardware,))
        assert event.data.node == "n1.example.com"
    heard = asyncio.Event()
    follow = await buses["global-proxy"].follow(
        (ModelDemand,), lambda fact: heard.set() if isinstance(fact, Snapshot) and fact.events else None
    )
    await asyncio.wait_for(heard.wait(), 60)
    await follow.close()
    for user, what in (("proxy", NodeHardware(node="n1")), ("viewer", NodeHardware(node="n1"))):
        with pytest.raises(BusRefused, match="denies"):
            await buses[user].publish(mint.mint(what), durable=True)
    with pytest.raises(BusRefused, match="denies"):
        await buses["agent"].state((NodeHardware,))
    with pytest.raises(BusRefused, match="denies"):
        await buses["scheduler"].ensure()
    for bus in buses.values():
        await bus.close()


async def test_without_credential_or_with_another_ca_nobody_gets_in(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    first = await server.join("dashboard")
    await first.close()
    host, _, port = server.url.removeprefix("nats://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert b'"tls_required":true' in await asyncio.wait_for(reader.readline(), 60)
    context = ssl.create_default_context()
    context.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.wait_for(writer.start_tls(context), 60)
    writer.close()

    (server.folder / "dashboard.auth").write_text("dashboard:wrong")
    bus = await NatsBus.start(
        server.url, name="dashboard", credentials=server.folder / "dashboard.auth", ca=server.folder / "ca.crt"
    )
    async with asyncio.timeout(60):
        while "cannot reach the bus" not in caplog.text:  # noqa: ASYNC110 - a log line sets no event
            await asyncio.sleep(0.02)
    assert not bus.connected
    await bus.close()
