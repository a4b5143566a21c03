"""Helper processes of a world that a test breaks: the API server, a machine of virtual nodes, the placer.

python tests/faults/parts.py api FOLDER PORT TOKEN
python tests/faults/parts.py machine FLEET KUBECONFIG NATS_URL WORK
python tests/faults/parts.py placer KUBECONFIG EXTENDER_URL
"""

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.local import control_plane
from flexinfer.local.fleet.agents import VirtualNodes, World
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.kubeapi.keeping import read_kept
from flexinfer.local.processes import Reaper
from flexinfer.local.schedloop import SchedulerLoop
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import stop_signals
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.virtual.declared import load_fleet


async def api(folder: Path, port: int, token: str) -> None:
    """Serve until SIGTERM; every write that was answered is there at the next start, as with etcd behind it."""
    stop = stop_signals()
    server = await EmbeddedApi(port=port, token=token, kept=read_kept(folder), folder=folder, history=5000).start()
    await stop.wait()
    await server.stop()
    await server.freeze()


async def machine(fleet: Path, kubeconfig: Path, nats_url: str, work: Path) -> None:
    """Virtual nodes: their agents, and the runners of their pods."""
    stop = stop_signals()
    async with AsyncExitStack() as stack:
        client = await KubeClient.connect(kubeconfig)
        stack.push_async_callback(client.aclose)
        bus = await NatsBus.start(nats_url, name=fleet.stem, clock=SystemClock())
        stack.push_async_callback(bus.close)
        reaper = await Reaper.start()
        stack.push_async_callback(reaper.close)
        world = World(client, bus, SystemClock(), reaper, work, control_plane.image_table())
        nodes = VirtualNodes(load_fleet(fleet), world)
        stack.push_async_callback(nodes.stop)
        await nodes.start()
        await stop.wait()


async def placer(kubeconfig: Path, extender: str) -> None:
    """What kube-scheduler does with our extender."""
    stop = stop_signals()
    client = await KubeClient.connect(kubeconfig)
    tasks = Supervisor("placer")
    tasks.forever("loop", SchedulerLoop(client, extender).run)
    await stop.wait()
    await tasks.close()
    await client.aclose()


def main(argv: list[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    match argv:
        case ["api", folder, port, token]:
            work = api(Path(folder), int(port), token)
        case ["machine", fleet, kubeconfig, nats_url, folder]:
            work = machine(Path(fleet), Path(kubeconfig), nats_url, Path(folder))
        case ["placer", kubeconfig, extender]:
            work = placer(Path(kubeconfig), extender)
        case _:
            sys.exit(__doc__)
    asyncio.run(work)


if __name__ == "__main__":
    main(sys.argv[1:])
