"""Two clusters on one machine, joined to a hub by NATS leaf nodes, behind one global proxy.

How quickly (within 5 s) benchmarks/proxy_failover.py measures: a test that looks at a clock fails on busy machines.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from flexinfer.contracts.topics import TOPICS
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.testing.fake_engine import Speeds
from tests.contract.proxy.rig import Wire, chat, post, until
from tests.integration.proxy.processes import Program, Stage, stage_in

ASK = post("/v1/chat/completions", chat())


def leaf_options(folder: Path, cluster: str, hub_port: int) -> str:
    """Live subjects pass, state stays where it belongs.

    A key-value write is a publish on ``$KV.…`` like any other; without the denial it would land in the buckets of the
    same name at the hub and in every other cluster. (Denying ``>`` to come in would stop the hub's interest as well.)
    """
    return (
        f'jetstream {{ store_dir: "{folder}/nats/jetstream", domain: {cluster}, max_file_store: 1073741824 }}\n'
        f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{hub_port}", '
        'deny_imports: ["$KV.>", "$JS.>"], deny_exports: ["$KV.>", "$JS.>", "_INBOX.>"] } ] }\n'
    )


@dataclass
class Federation:
    hub: NatsServer
    folder: Path
    stages: dict[str, Stage]
    proxies: dict[str, Program]
    globe: Program | None = None

    async def front(self, *args: str) -> Program:
        self.globe = await Program.start("flexinfer-global-proxy", self.folder / "global.log", *args)
        await self.globe.ready()
        return self.globe

    async def knows(self, *names: str) -> None:
        """Wait until the global proxy has these clusters up with their models."""
        assert self.globe
        async with asyncio.timeout(60):
            while True:
                rows = msgspec.json.decode((await self.globe.get("/status")).body)["clusters"]
                if {row["cluster"] for row in rows if row["up"] and row["models"]} >= set(names):
                    return
                await asyncio.sleep(0.05)

    async def spread(self, requests: int) -> Counter[str]:
        assert self.globe
        found: Counter[str] = Counter()
        for _ in range(requests):
            answer = await self.globe.ask(ASK)
            assert answer.status == 200
            found[answer.headers["x-flexinfer-cluster"]] += 1
        return found


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    port = free_port()
    hub = await NatsServer(tmp_path / "hub", options=f"leafnodes {{ listen: 127.0.0.1:{port} }}").start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hub.kill)
        stages: dict[str, Stage] = {}
        proxies: dict[str, Program] = {}
        for name in ("east", "west"):
            folder = tmp_path / name
            options = leaf_options(folder, name, port)
            stage = await stack.enter_async_context(stage_in(folder, cluster=name, options=options))
            await stage.route(await stage.engine(speeds=Speeds(tokens_per_second=400)), speeds=(300.0,))
            stages[name] = stage
            proxies[name] = await (await stage.proxy("p1")).ready()
        made = Federation(hub, tmp_path, stages, proxies)
        yield made
        if made.globe:
            await made.globe.kill()


async def test_clusters_are_found_over_leaf_nodes_and_state_stays_at_home(federation: Federation) -> None:
    await federation.front("--nats-url", federation.hub.url)
    await federation.knows("east", "west")

    assert set(await federation.spread(8)) == {"east", "west"}
    for name, stage in federation.stages.items():
        other = "west" if name == "east" else "east"
        sources = {event.source for event in await stage.bus.state(_all_state())}
        assert sources
        assert not any(f"/clusters/{other}/" in source for source in sources)


def _all_state() -> tuple[type, ...]:
    return tuple(topic.data for topic in TOPICS.values() if topic.bucket)


async def test_a_killed_cluster_loses_no_request_and_is_soon_out(federation: Federation) -> None:
    globe = await federation.front("--nats-url", federation.hub.url, "--health-interval", "1s")
    await federation.knows("east", "west")
    answers: list[int] = []

    async def keep_asking() -> None:
        while True:
            answers.append((await globe.ask(ASK)).status)

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(keep_asking()) for _ in range(4)]
        await until(lambda: len(answers) > 20)
        await federation.proxies["east"].kill()
        async with asyncio.timeout(60):
            while True:
                rows = msgspec.json.decode((await globe.get("/status")).body)["clusters"]
                if [row["up"] for row in rows if row["cluster"] == "east"] == [False]:
                    break
                await asyncio.sleep(0.02)
        for task in asking:
            task.cancel()

    assert set(answers) == {200}
    assert set(await federation.spread(10)) == {"west"}


async def test_traffic_spills_by_headroom_when_a_cluster_fills_up(federation: Federation) -> None:
    await federation.front("--nats-url", federation.hub.url, "--strategy", "headroom")
    await federation.knows("east", "west")
    even = await federation.spread(20)
    assert 6 <= even["east"] <= 14
    wires = []
    for _ in range(2):
        wire = await Wire.to(federation.proxies["east"].port)
        wire.send(post("/v1/chat/completions", chat(stream=True, tokens=100_000)))
        wires.append(wire)

    async with asyncio.timeout(60):
        while (await federation.spread(20))["east"] > 2:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.2)

    for wire in wires:
        await wire.close()


async def test_flags_need_no_bus(federation: Federation) -> None:
    flags = ",".join(f"{name}=http://127.0.0.1:{proxy.port}" for name, proxy in federation.proxies.items())
    globe = await federation.front(
        "--clusters", flags, "--strategy", "failover", "--failover-order", "west,east", "--health-interval", "500ms"
    )
    await federation.knows("east", "west")

    assert set(await federation.spread(4)) == {"west"}
    await federation.proxies["west"].kill()
    assert set(await federation.spread(4)) == {"east"}
    assert await globe.terminate() == 0


async def test_requests_at_a_frozen_cluster_are_answered_by_the_other(federation: Federation) -> None:
    flags = ",".join(f"{name}=http://127.0.0.1:{proxy.port}" for name, proxy in federation.proxies.items())
    globe = await federation.front("--clusters", flags, "--strategy", "failover", "--failover-order", "east,west")
    await federation.knows("east", "west")
    east = federation.proxies["east"].process
    east.send_signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            wires = [await Wire.to(globe.port) for _ in range(4)]
            for wire in wires:
                wire.send(ASK)
            answers = [await wire._answer(head_only=False) for wire in wires]
    finally:
        east.send_signal(signal.SIGCONT)

    assert {(answer.status, answer.headers["x-flexinfer-cluster"]) for answer in answers} == {(200, "west")}
    for wire in wires:
        await wire.close()
