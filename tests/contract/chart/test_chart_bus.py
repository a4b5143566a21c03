"""The bus as the chart configures it: a real nats-server with the rendered file, TLS and every credential."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from chart_rendering import Render
from chart_servers import CLIENTS, Server, ended, started

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.bus.nats.callout import Callout
from flexinfer.adapters.bus.nats.signing import Signer
from flexinfer.config.common import BusSettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import ModelDemand, NodeHardware
from flexinfer.contracts.permissions import Grant, Refusal, permissions
from flexinfer.local.ports import free_port
from flexinfer.ports import BusRefused, Snapshot
from flexinfer.runtime.clock import SystemClock

WITHOUT_CALLOUT = ("--set", "nats.auth.callout.enabled=false")


@pytest.fixture
async def server(request: pytest.FixtureRequest, render: Render, tmp_path: Path) -> Any:
    values = getattr(request, "param", ())
    made = await started(render(*values), tmp_path, {"client0": free_port("127.0.0.1")})
    try:
        yield made
    finally:
        await ended([made])


@pytest.mark.parametrize("server", [WITHOUT_CALLOUT], indirect=True)
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


async def test_agents_get_in_by_the_managers_word_and_all_others_without_it(server: Server) -> None:
    others = {user: await server.join(user) for user in CLIENTS if user not in ("agent", "global-proxy")}
    await others["manager"].ensure()
    assert not (server.folder / "agent.auth").exists()
    (server.folder / "agent.auth").write_text("eyJhbGci.of-an-agent.sig")
    client = CLIENTS["agent"]
    node = client.removeprefix("flexinfer-agent ")

    async def decide(token: str) -> Grant | Refusal:
        if token != "eyJhbGci.of-an-agent.sig":
            return Refusal("token", "unknown")
        return Grant(client, permissions("agent", client, node), 600.0)

    callout = Callout(Signer.read(server.folder / "seed"), decide, SystemClock())
    settings = BusSettings(
        nats_url=server.url, nats_credentials=server.folder / "manager.auth", nats_ca=server.folder / "ca.crt"
    )
    callout.start(settings, "flexinfer-manager one callout")
    agent = await server.join("agent")
    mint = EventMint.start("agent", "n1", "boot", lambda: 1_700_000_000.0)
    await agent.publish(mint.mint(NodeHardware(node=node)), durable=True)
    with pytest.raises(BusRefused, match="denies"):
        await agent.publish(mint.mint(NodeHardware(node="n2.example.com")), durable=True)
    [event] = await others["viewer"].state((NodeHardware,))
    assert event.data.node == node
    for bus in (*others.values(), agent):
        await bus.close()
    await callout.close()
