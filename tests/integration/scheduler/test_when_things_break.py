"""The bus goes, comes back, was never there; a replica is killed under load."""

import asyncio
import signal
from contextlib import suppress

import pytest

from flexinfer.contracts.kubernetes import NODES, PODS
from flexinfer.contracts.labels import DEFAULT_PREFIX

KEY = "m-0123456789ab"
NAMES = ["busy", "idle"]


def request(name="asker"):
    pod = {
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {"flexinfer.ai/benchmark-key": KEY, "flexinfer.ai/gpu.vendor": "NVIDIA"},
        },
        "spec": {"containers": [{"name": "c"}]},
    }  # fmt: skip
    return {"Pod": pod, "Nodes": None, "NodeNames": NAMES}


async def scores(cluster, url):
    return {one["Host"]: one["Score"] for one in await cluster.post(f"{url}/prioritize", request())}


async def test_without_the_bus_the_last_view_answers_and_with_it_again_the_next_fact_counts(cluster):
    await cluster.gpu_node("busy", util=90.0)
    await cluster.gpu_node("idle", util=0.0)
    url, _ = await cluster.extender()
    assert await scores(cluster, url) == {"busy": 1, "idle": 10}

    await cluster.server.stop()
    await cluster.until(lambda: not cluster.bus.connected, "bus away")
    alone = await scores(cluster, url)
    ready = await cluster.status(url, "/readyz", 200)
    await cluster.server.start()
    await cluster.until(lambda: cluster.bus.connected, "bus back")
    await cluster.live("busy", 0.0, 24564)
    await cluster.live("idle", 90.0, 24564)

    assert alone == {"busy": 1, "idle": 10}
    assert ready

    async def swapped():
        return await scores(cluster, url) == {"busy": 10, "idle": 1}

    await cluster.until(swapped, "new facts count")


async def test_a_replica_that_finds_no_bus_says_so_and_uses_labels_until_it_comes(cluster):
    labels = {"gpu.vendor": "NVIDIA", "gpu.vram": "24Gi", "gpu.arch": "sm_89", "gpu.count": "1"}
    for name, free in (("busy", "2000"), ("idle", "24000")):
        meta = {
            "name": name,
            "labels": {DEFAULT_PREFIX + key: value for key, value in labels.items()},
            "annotations": {DEFAULT_PREFIX + "gpu-free-memory": free},
        }
        await cluster.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
    await cluster.server.stop()

    url, _ = await cluster.extender("--degraded-after", "1s", ready=False)
    await cluster.until(lambda: cluster.status(url, "/healthz", 200), "listening")
    early = await cluster.post(f"{url}/filter", request())
    await cluster.until(lambda: cluster.status(url, "/readyz", 200), "ready, degraded")
    degraded = await cluster.get(f"{url}/readyz")
    found = await scores(cluster, url)
    explained = await cluster.get(f"{url}/explain?namespace=default&pod=asker")

    assert early["Error"].startswith("flexinfer: no snapshot")
    assert "degraded" in degraded["checks"]
    assert found["idle"] == 10 > found["busy"]
    assert explained["degraded"]

    await cluster.server.start()
    await cluster.until(lambda: cluster.bus.connected, "bus back")
    await cluster.bus.ensure()

    async def normal():
        return "degraded" not in (await cluster.get(f"{url}/readyz"))["checks"]

    await cluster.until(normal, "no longer degraded")


class Service:
    """Connections to replicas in turn, as a Kubernetes Service spreads them; dead ones are passed over."""

    def __init__(self, urls):
        self._ports = [int(url.rpartition(":")[2]) for url in urls]
        self._next = 0
        self._server = None

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        for _ in self._ports:
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            try:
                upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            await asyncio.gather(pump(reader, upstream_writer), pump(upstream_reader, writer))
            return
        writer.close()


async def pump(reader, writer):
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.mark.slow
async def test_killing_one_of_two_replicas_under_load_loses_and_misplaces_no_pod(cluster):
    count = 24
    for number in range(count):
        await cluster.gpu_node(f"node-{number:02d}", util=float(number))
    replicas = [await cluster.extender() for _ in range(2)]
    async with Service([url for url, _ in replicas]) as url:
        cluster.schedule(url)
        for number in range(count):
            await cluster.pod(f"pod-{number:02d}", key=KEY, vram="9000")

        async def bound():
            pods = (await cluster.api.list(PODS, "default")).items
            return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]

        async def at_least(wanted):
            return len(await bound()) >= wanted

        await cluster.until(lambda: at_least(count // 3), "a third bound")
        replicas[0][1].send_signal(signal.SIGKILL)
        await cluster.until(lambda: at_least(count), "all bound")

        assert len(set(await bound())) == count, "one pod on each card"
