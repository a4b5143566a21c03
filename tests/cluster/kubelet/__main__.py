"""``python -m kubelet SETTINGS.json``: kubelets, kube-proxy, DNS and volume provisioner of the rig in one process.

Run it in a network namespace that it may have to itself. It ends at SIGTERM; its children and namespaces end with it.
"""

import asyncio
import json
import logging
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from kubelet import dns, house, images, logs
from kubelet.netns import ip
from kubelet.provisioner import Provisioner
from kubelet.services import DNS, Forwarder, ServiceTable, environment

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.kubernetes import SERVICES
from flexinfer.local.processes import Reaper
from flexinfer.local.runner import Pacing, ProcessRunner
from flexinfer.ports import Conflict
from flexinfer.runtime.tasks import Supervisor

DNS_ADDRESS = "10.96.0.10"
LOG_PORT = 10250


async def main(settings: dict[str, Any]) -> None:
    """Until SIGTERM."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    work = Path(settings["work"])
    async with AsyncExitStack() as stack:
        reaper = await Reaper.start()
        stack.push_async_callback(reaper.close)
        api = await KubeClient.connect(Path(settings["kubeconfig"]))
        stack.push_async_callback(api.aclose)
        tasks = Supervisor("rig")
        stack.push_async_callback(tasks.close)
        table = ServiceTable(api, ("127.0.0.1", settings["api_port"]))
        table.start(tasks)
        await _dns(api, table, stack)
        tasks.forever("forwarder", Forwarder(table, house.BRIDGE).run)
        await Provisioner(api, work / settings["nodes"][0] / "claims").start(tasks)
        kube = Path(settings["kube"])
        pods = house.House(
            images.visible(kube), images.users(), DNS_ADDRESS, lambda pod: environment(table, pod),
            work / "addresses.jsonl",
        )  # fmt: skip
        await table.wait_synced()
        for number, node in enumerate(settings["nodes"]):
            port = LOG_PORT + number
            runner = ProcessRunner(
                api, node, images.table(kube), work / node, reaper=reaper, housing=pods, log_port=port,
                pacing=Pacing(retry=0.3, backoff=2.0), host_paths=images.host_paths(work / node),
            )  # fmt: skip
            server = await logs.serve(
                runner, house.GATEWAY, port, Path(settings["certificate"]), Path(settings["key"])
            )  # fmt: skip
            stack.push_async_callback(server.cleanup)
            await runner.start()
            stack.push_async_callback(runner.stop)
        await stopped.wait()


async def _dns(api: KubeClient, table: ServiceTable, stack: AsyncExitStack) -> None:
    """The server, and the Service by which people know its address."""
    namespace, name = DNS
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"k8s-app": name}},
            "spec": {"clusterIP": DNS_ADDRESS, "ports": ports}}  # fmt: skip
    with suppress(Conflict):
        await api.create(SERVICES, body, namespace)
    ip(f"addr add {DNS_ADDRESS}/32 dev {house.BRIDGE}")
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: dns.Server(table), local_addr=(DNS_ADDRESS, 53)
    )
    stack.callback(transport.close)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
