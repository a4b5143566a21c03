"""The kind configuration: what stands for the agents says what is declared, to a real bus."""

import asyncio
import sys
from pathlib import Path

import yaml
from chart_rendering import Render, one

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.events import NodeHardware
from flexinfer.contracts.labels import GPU_RESOURCES
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import BusFact, Snapshot
from flexinfer.testing.virtual.declared import load_fleet

KIND = Path(__file__).resolve().parents[3] / "deploy" / "kind"


def test_every_worker_is_declared_and_gets_its_device() -> None:
    nodes = yaml.safe_load((KIND / "mixed-gpus.yaml").read_text())["nodes"]
    workers = [node for node in nodes if node["role"] == "worker"]
    fleet = load_fleet(KIND / "fleet.yaml")
    # kind's own names of the workers of a cluster "flexinfer".
    names = ["flexinfer-worker", *(f"flexinfer-worker{number}" for number in range(2, len(workers) + 1))]
    script = (KIND / "pretend.sh").read_text()

    assert [node.name for node in fleet.expanded()] == names
    for node in fleet.expanded():
        for gpu in node.gpus:
            assert f"device {node.name} {GPU_RESOURCES[gpu.vendor]}\n" in script
        if node.gpus:
            assert f"node {node.name} flexinfer.ai/cost={node.cost:.2f}\n" in script


def test_no_real_agent_runs_beside_it(render: Render) -> None:
    objects = render("-f", str(KIND / "values.yaml"))
    agents = one(objects, "DaemonSet", "flexinfer-agent")["spec"]["template"]["spec"]
    pretend = yaml.safe_load((KIND / "pretend.yaml").read_text())["spec"]["template"]["spec"]

    assert agents["nodeSelector"] == {"flexinfer.example/has-real-hardware": "true"}
    assert one(objects, "ServiceAccount", pretend["serviceAccountName"])
    assert [v["name"] for v in agents["volumes"] if "projected" in v] == ["nats"]
    [theirs] = [v["projected"] for v in agents["volumes"] if "projected" in v]
    [ours] = [v["projected"] for v in pretend["volumes"] if "projected" in v]
    assert ours == theirs


async def test_pretend_tells_the_bus_what_the_fleet_has(tmp_path: Path) -> None:
    server = await NatsServer(tmp_path / "nats").start()
    bus = await NatsBus.start(server.url, name="flexinfer-manager test")
    up, heard, all_there = asyncio.Event(), dict[str, NodeHardware](), asyncio.Event()
    bus.on_connect(up.set)
    await asyncio.wait_for(up.wait(), 60)
    await bus.ensure()

    def sink(fact: BusFact) -> None:
        for event in fact.events if isinstance(fact, Snapshot) else (fact,):
            if isinstance(event.data, NodeHardware):
                heard[event.data.node] = event.data
        if len(heard) == 4:
            all_there.set()

    await bus.follow((NodeHardware,), sink)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(KIND / "pretend.py"), "--nats-url", server.url, "--dry-run"
    )
    try:
        await asyncio.wait_for(all_there.wait(), 90)
        assert all(hardware.virtual for hardware in heard.values())
        assert heard["flexinfer-worker2"].devices[0].arch == "gfx1100"
        assert heard["flexinfer-worker4"].devices == ()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await bus.close()
        await server.stop()
