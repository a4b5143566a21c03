"""From a laptop with a kubeconfig to the bus inside a cluster: the port-forward is built in."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import WSMsgType, web

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.runtime.clock import SystemClock
from tests.contract.dashboard.mixed_day import mixed_day
from tests.integration.people.conftest import DEADLINE, Typed


class Cluster:
    """An API server as far as these commands see one: lists, logs, and a kubelet's port-forward to one address."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.objects: dict[str, list[dict[str, Any]]] = {"pods": [], "configmaps": [], "secrets": []}
        self.refused: set[str] = set()
        self.runner: web.AppRunner | None = None

    async def start(self, folder: Path) -> Path:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/{ns}/pods/{pod}/portforward", self._forward)
        app.router.add_get("/api/v1/namespaces/{ns}/pods/{pod}/log", self._log)
        app.router.add_get("/api/v1/namespaces/{ns}/{plural}", self._list)
        app.router.add_get("/api/v1/{plural}", self._list)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        address = site._server.sockets[0].getsockname()  # type: ignore[union-attr]
        path = folder / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "c",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{address[1]}"}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )  # fmt: skip
        return path

    async def _list(self, request: web.Request) -> web.Response:
        plural = request.match_info["plural"]
        if plural in self.refused:
            return web.json_response(
                {"kind": "Status", "reason": "Forbidden", "message": "no rights", "code": 403}, status=403
            )
        items = [
            item for item in self.objects[plural]
            if request.match_info.get("ns") in {None, item["metadata"]["namespace"]}
        ]  # fmt: skip
        label = request.query.get("labelSelector", "")
        if label:
            key, _, value = label.partition("=")
            items = [item for item in items if (item["metadata"].get("labels") or {}).get(key) == value]
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})

    async def _log(self, request: web.Request) -> web.Response:
        return web.Response(text=f"{request.match_info['pod']} {request.query['container']} says hello\n")

    async def _forward(self, request: web.Request) -> web.WebSocketResponse:
        assert request.query["ports"] == "4222"
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + (4222).to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as err:
            await socket.send_bytes(b"\x01" + str(err).encode())
            await socket.close()
            return socket

        async def down() -> None:
            while data := await reader.read(1 << 16):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

        task = asyncio.get_running_loop().create_task(down())
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[0] == 0:
                writer.write(message.data[1:])
        writer.close()
        task.cancel()
        return socket

    def add(self, plural: str, name: str, labels: dict[str, str], **rest: Any) -> None:
        meta = {"namespace": "flexinfer-system", "name": name, "labels": labels}
        self.objects[plural].append({"metadata": meta} | rest)


BUS = {"app.kubernetes.io/component": "nats", "app.kubernetes.io/part-of": "flexinfer"}


@pytest.fixture
async def cluster(bus_url: str) -> AsyncIterator[Cluster]:
    found = Cluster(int(bus_url.rpartition(":")[2]))
    yield found
    if found.runner:
        await found.runner.cleanup()


async def test_status_and_top_through_a_port_forward(cluster: Cluster, bus_url: str, tmp_path: Path) -> None:
    bus = await NatsBus.start(bus_url, name="test", clock=SystemClock())
    up = asyncio.Event()
    bus.on_connect(up.set)
    async with asyncio.timeout(DEADLINE):
        await up.wait()
        await bus.ensure()
    for _, event in mixed_day()[:120]:
        await bus.publish(event, durable=True)
    kubeconfig = await cluster.start(tmp_path)
    cluster.add("pods", "flexinfer-nats-0", BUS, status={"phase": "Running"})
    cluster.add("secrets", "flexinfer-nats-viewer", BUS, data={"credentials": base64.b64encode(b"a:b").decode()})

    status = await Typed.start("flexinfer", "status", "--kubeconfig", str(kubeconfig), "-o", "json")
    code, out, err = await status.end()
    assert (code, err) == (0, "")
    assert {node["node"] for node in json.loads(out)["hardware"]} == {"a100", "arc", "l4", "mi300x"}

    top = await Typed.start("flexinfer", "top", env={"KUBECONFIG": str(kubeconfig)})
    code, out, _ = await top.end()
    assert code == 0
    assert "flexinfer top" in out
    assert "Instinct MI300X" in out
    await bus.close()


async def test_what_is_missing_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = str(await cluster.start(tmp_path))
    argv = ("flexinfer", "status", "--kubeconfig", kubeconfig)
    code, _, err = await (await Typed.start(*argv)).end()
    assert code == 1
    assert err.startswith("flexinfer status: no running bus in namespace flexinfer-system")

    cluster.add("pods", "flexinfer-nats-0", BUS, status={"phase": "Running"})
    cluster.refused.add("secrets")
    code, _, err = await (await Typed.start(*argv)).end()
    assert code == 1
    assert "Secrets in flexinfer-system cannot be read" in err
    assert "give --nats-credentials" in err


async def test_logs_by_the_names_people_use(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = str(await cluster.start(tmp_path))
    labels = {"app.kubernetes.io/component": "manager", "app.kubernetes.io/name": "flexinfer",
              "app.kubernetes.io/part-of": "flexinfer"}  # fmt: skip
    cluster.add("pods", "flexinfer-manager-7c9-x", labels, spec={"containers": [{"name": "manager"}]})
    cluster.add("pods", "other", {"app.kubernetes.io/component": "web"}, spec={"containers": [{"name": "web"}]})

    code, out, _ = await (await Typed.start("flexinfer", "logs", "manager", "--kubeconfig", kubeconfig)).end()
    assert (code, out) == (0, "flexinfer-manager-7c9-x manager says hello\n")
    code, _, err = await (await Typed.start("flexinfer", "logs", "nobody", "--kubeconfig", kubeconfig)).end()
    assert (code, err) == (1, "flexinfer logs: nothing is called 'nobody'; there are: manager\n")
