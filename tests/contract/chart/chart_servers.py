"""Servers of the bus as the chart configures them: nats-server with the rendered file, TLS and every credential."""

import asyncio
import json
import os
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from chart_rendering import Object, one

from flexinfer.adapters.bus.nats import Limits, NatsBus
from flexinfer.adapters.bus.nats.signing import Signer
from flexinfer.local.nats_server import find_binary
from flexinfer.local.ports import free_port
from flexinfer.ports import BusRefused, BusUnavailable

T = TypeVar("T")

# Who connects with which credential, under the name its executable gives itself.
CLIENTS = {
    "agent": "flexinfer-agent n1.example.com", "manager": "flexinfer-manager flexinfer-controller-1",
    "scheduler": "scheduler", "proxy": "flexinfer-proxy flexinfer-proxy-1", "dashboard": "dashboard",
    "global-proxy": "flexinfer-global-proxy", "viewer": "status",
}  # fmt: skip


class Server:
    """One process; ``monitor`` is the port of its pages."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, folder: Path, monitor: int) -> None:
        self.process, self.url, self.folder, self.monitor = process, url, folder, monitor

    async def join(
        self, user: str, cluster: str = "default", limits: Limits | None = None, others: Sequence["Server"] = ()
    ) -> NatsBus:
        """A client that knows this server, and ``others`` as a Service would lead to them."""
        bus = await NatsBus.start(
            ",".join(server.url for server in (self, *others)), name=CLIENTS[user], cluster=cluster,
            credentials=self.folder / f"{user}.auth", ca=self.folder / "ca.crt", limits=limits,
        )  # fmt: skip
        up = asyncio.Event()
        bus.on_connect(up.set)
        await asyncio.wait_for(up.wait(), 60)
        return bus

    async def page(self, path: str) -> Any:
        """One of the monitor's pages; None while it does not answer, or answers that it is not well."""

        def read() -> Any:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}{path}", timeout=30) as answer:
                    return json.load(answer)
            except OSError:
                return None

        return await asyncio.to_thread(read)

    async def streams(self) -> dict[str, Any]:
        """Stream → what this server knows of it, its leader among that."""
        page = await self.page("/jsz?accounts=true&streams=true&config=true") or {}
        details = [one for account in page.get("account_details") or () for one in account.get("stream_detail") or ()]
        return {one["name"]: one for one in details}


async def started(objects: list[Object], folder: Path, ports: dict[str, int], number: int = 0) -> Server:
    """One server of the StatefulSet with the rendered configuration; only addresses and paths are those of here."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - one folder
    secrets = {obj["metadata"]["name"]: obj["stringData"] for obj in objects if obj["kind"] == "Secret"}
    for user in CLIENTS:
        if f"flexinfer-nats-{user}" in secrets:
            (folder / f"{user}.auth").write_text(secrets[f"flexinfer-nats-{user}"]["credentials"])
    for name, content in secrets["flexinfer-nats-tls"].items():
        (folder / name).write_text(content)
    config = one(objects, "ConfigMap", "flexinfer-nats")["data"]["nats.conf"]
    monitor = free_port("127.0.0.1")
    here = {
        "0.0.0.0:4222": f"127.0.0.1:{ports[f'client{number}']}", "0.0.0.0:8222": f"127.0.0.1:{monitor}",
        "/data": str(folder / "data"), "/etc/nats/tls": str(folder),
    }  # fmt: skip
    for peer in range(3 if "route0" in ports else 0):
        name = f"flexinfer-nats-{peer}.flexinfer-nats-headless.flexinfer-system.svc:6222"
        here |= {name: f"127.0.0.1:{ports[f'route{peer}']}", "0.0.0.0:6222": f"127.0.0.1:{ports[f'route{number}']}"}
    if "flexinfer-nats-callout" in secrets:
        (folder / "seed").write_text(secrets["flexinfer-nats-callout"]["seed"])
        (folder / "issuer.conf").write_text(f"issuer: {Signer.read(folder / 'seed').issuer}\n")
        here["../callout/issuer.conf"] = "issuer.conf"
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
    return Server(process, f"nats://127.0.0.1:{ports[f'client{number}']}", folder, monitor)


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
