"""The agents of a cluster without GPUs: the real loops over the hardware that fleet.yaml declares.

Settings are those of flexinfer-agent. With ``--dry-run`` no Node is written, and the bus alone hears of the fleet.
"""  # noqa: INP001 - a script

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.inference.fetch import PageReader
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.config.agent import AgentSettings
from flexinfer.config.common import parse
from flexinfer.contracts.kubernetes import NODES, PODS
from flexinfer.ports import KubeFact
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, host_name, stop_signals
from flexinfer.runtime.tasks import Supervisor
from flexinfer.telemetry import logs
from flexinfer.testing.virtual.agent import Surroundings, VirtualAgent
from flexinfer.testing.virtual.declared import load_fleet


async def main(settings: AgentSettings) -> None:
    """Until SIGTERM."""
    stop, clock, tasks = stop_signals(), SystemClock(), Supervisor("pretend")
    fleet = load_fleet(Path(__file__).with_name("fleet.yaml"))
    async with AsyncExitStack() as stack:
        bus = await NatsBus.start(
            settings.nats_url, name=f"flexinfer-agent {host_name()}", cluster=settings.cluster,
            credentials=settings.nats_credentials, ca=settings.nats_ca, clock=clock,
        )  # fmt: skip
        stack.push_async_callback(bus.close)
        api = None if settings.dry_run else await KubeClient.connect(settings.kubeconfig)
        pages = PageReader()
        stack.push_async_callback(pages.aclose)
        stack.push_async_callback(tasks.close)
        around = Surroundings(bus, clock, pages.read, clock.now(), boot_id(), api)
        agents = [VirtualAgent(node, fleet, around) for node in fleet.expanded()]

        def on_node(fact: KubeFact) -> None:
            for agent in agents:
                agent.on_node(fact)

        def on_pods(fact: KubeFact) -> None:
            for agent in agents:
                agent.on_pods(fact)

        for agent in agents:
            agent.start(tasks)
        if api is not None:
            stack.push_async_callback(api.aclose)
            tasks.forever("nodes", Informer(api, NODES, on_node).run)
            tasks.forever("pods", Informer(api, PODS, on_pods).run)
        await stop.wait()


if __name__ == "__main__":
    found = parse(AgentSettings, "pretend.py")
    logs.setup(found.log_level, found.log_format)
    asyncio.run(main(found))
