"""One URL over several clusters."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from flexinfer.adapters.bus.memory import MemoryBus
from flexinfer.apps.global_proxy import GlobalProxy
from flexinfer.apps.proxy import Proxy
from flexinfer.config.proxy import GlobalProxySettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import ClusterHeadroom
from flexinfer.telemetry import metrics
from flexinfer.testing.fake_engine import Fault
from tests.contract.proxy.rig import Answer, Rig, Wire, chat, post, rig_of, until

ASK = post("/v1/chat/completions", chat())


class Globe:
    """Clusters of one proxy each, and a global proxy over them."""

    def __init__(self, rigs: dict[str, Rig]) -> None:
        self.rigs = rigs
        self.made: list[GlobalProxy] = []

    async def start(self, **options: Any) -> GlobalProxy:
        flags = ",".join(f"{name}={rig.proxy.url()}" for name, rig in self.rigs.items())
        settings = GlobalProxySettings(
            host="127.0.0.1",
            port=0,
            **{"clusters": flags, "health_interval": 60, "drain_timeout": 2, "accept_timeout": 0, **options},
        )
        bus = options.pop("bus", None)
        proxy = await GlobalProxy(settings, bus).start()
        self.made.append(proxy)
        await until(lambda: proxy.checks.rounds > 0)
        return proxy

    async def ask(self, data: bytes = ASK) -> Answer:
        wire = await Wire.to(self.made[-1].port)
        wire.send(data)
        try:
            return await wire.answer()
        finally:
            await wire.close()


@pytest.fixture
async def globe() -> AsyncIterator[Globe]:
    async with rig_of() as east, rig_of() as west:
        for name, rig in (("east", east), ("west", west)):
            await rig.start(cluster=name)
            await rig.route(await rig.engine())
        made = Globe({"east": east, "west": west})
        try:
            yield made
        finally:
            for proxy in made.made:
                await proxy.stop()


async def test_clusters_take_turns_and_say_who_they_are(globe: Globe) -> None:
    await globe.start()

    answers = [await globe.ask() for _ in range(6)]

    assert [answer.status for answer in answers] == [200] * 6
    assert sorted(answer.headers["x-flexinfer-cluster"] for answer in answers) == ["east"] * 3 + ["west"] * 3
    assert answers[0].headers["x-flexinfer-endpoint"] == "pod-0"


async def test_a_request_goes_where_its_model_is(globe: Globe) -> None:
    west = globe.rigs["west"]
    await west.route(await west.engine(), model="rare", aliases=("scarce",))
    await globe.start()

    for name in ("rare", "default/rare", "scarce"):
        answers = [await globe.ask(post("/v1/chat/completions", chat(name))) for _ in range(3)]
        assert {answer.headers["x-flexinfer-cluster"] for answer in answers} == {"west"}


async def test_a_model_that_came_since_the_last_check_is_found(globe: Globe) -> None:
    proxy = await globe.start()
    west = globe.rigs["west"]
    await west.route(await west.engine(), model="new")
    proxy.checks._last = float("-inf")

    answer = await globe.ask(post("/v1/chat/completions", chat("new")))

    assert (answer.status, answer.headers["x-flexinfer-cluster"]) == (200, "west")


async def test_503_only_when_no_cluster_has_the_model(globe: Globe) -> None:
    await globe.start()

    answer = await globe.ask(post("/v1/chat/completions", chat("nobody")))

    assert (answer.status, answer.error()["code"]) == (503, "cluster_unavailable")


async def test_a_dead_cluster_costs_no_request(globe: Globe) -> None:
    await globe.start()
    east: Proxy = globe.rigs["east"].proxies.pop()
    await east.stop()

    answers = [await globe.ask() for _ in range(6)]

    assert [answer.status for answer in answers] == [200] * 6
    assert {answer.headers["x-flexinfer-cluster"] for answer in answers} == {"west"}
    assert not globe.made[0].clusters.members["east"].health.up


async def test_a_cluster_that_cannot_start_the_model_is_passed_over(globe: Globe) -> None:
    await globe.start()
    await globe.rigs["east"].route(wakeable=True, failure="no node")

    answers = [await globe.ask() for _ in range(4)]

    assert {answer.headers["x-flexinfer-cluster"] for answer in answers} == {"west"}


async def test_streams_pass_and_break_as_they_are(globe: Globe) -> None:
    await globe.start(strategy="failover", failover_order="west,east")
    engine = globe.rigs["west"].engines[0]

    whole = await globe.ask(post("/v1/chat/completions", chat(stream=True, tokens=8)))
    engine.fault = Fault(truncate_after=3)
    broken = await globe.ask(post("/v1/chat/completions", chat(stream=True, tokens=8)))

    assert whole.clean
    assert whole.body.endswith(b"data: [DONE]\n\n")
    assert whole.headers["x-flexinfer-cluster"] == "west"
    assert not broken.clean


async def test_the_model_lists_are_merged(globe: Globe) -> None:
    west = globe.rigs["west"]
    await west.route(await west.engine(), model="rare")
    await globe.start()

    answer = await globe.ask(b"GET /v1/models HTTP/1.1\r\nHost: p\r\n\r\n")

    rows = {row["id"]: row["flexinfer"]["clusters"] for row in msgspec.json.decode(answer.body)["data"]}
    assert rows == {"m": {"east": "ready", "west": "ready"}, "rare": {"west": "ready"}}


async def test_clusters_make_themselves_known_over_the_bus(globe: Globe) -> None:
    rigs = globe.rigs
    shared = MemoryBus(rigs["east"].broker, cluster="*")
    settings = GlobalProxySettings(host="127.0.0.1", port=0, nats_url="nats://x", drain_timeout=1, accept_timeout=0)
    proxy = await GlobalProxy(settings, shared).start()
    globe.made.append(proxy)
    assert proxy.readiness.report()[0] is False

    await until(lambda: proxy.readiness.report()[0])

    answer = await globe.ask()
    assert (answer.status, answer.headers["x-flexinfer-cluster"]) == (200, "east")


async def test_what_the_bus_says_of_no_cluster_is_counted_and_left(globe: Globe) -> None:
    await globe.start()
    proxy = globe.made[-1]
    before = metrics.value_of("flexinfer_global_rejected_events_total")
    evil = EventMint.start("proxy", "p", "b", lambda: 1.0, "west\r\nx-evil: 1")

    proxy._heard(evil.mint(ClusterHeadroom(proxy="p", url="http://127.0.0.1:1")))

    assert metrics.value_of("flexinfer_global_rejected_events_total") == before + 1
    assert set(proxy.clusters.members) == {"east", "west"}


async def test_the_status_page_is_for_people_and_for_tools(globe: Globe) -> None:
    await globe.start()
    await globe.ask()

    tools = await globe.ask(b"GET /status HTTP/1.1\r\nHost: p\r\n\r\n")
    people = await globe.ask(b"GET /status HTTP/1.1\r\nHost: p\r\nAccept: text/html\r\n\r\n")

    document = msgspec.json.decode(tools.body)
    assert document["strategy"] == "round-robin"
    assert {row["cluster"]: row["up"] for row in document["clusters"]} == {"east": True, "west": True}
    assert people.headers["content-type"].startswith("text/html")
    assert b"<td>east</td>" in people.body
    assert b"http-equiv" in people.body


async def test_checks_show_their_key_and_clients_show_their_own(globe: Globe, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("check-key\nclient-key\n")
    (tmp_path / "key").write_text("check-key\n")
    east = globe.rigs["east"]
    guarded = await east.start(cluster="east", api_keys_file=tmp_path / "keys")
    await east.route(east.engines[0])
    proxy = await globe.start(clusters=f"east={guarded.url()}", check_key_file=tmp_path / "key")

    refused = await globe.ask()
    served = await globe.ask(post("/v1/chat/completions", chat(), "Authorization: Bearer client-key"))

    assert proxy.clusters.members["east"].health.up
    assert refused.status == 401
    assert served.status == 200


async def test_a_hanging_cluster_is_found_out_and_avoided(globe: Globe) -> None:
    held: list[asyncio.StreamWriter] = []
    hanging = await asyncio.start_server(lambda _reader, writer: held.append(writer), "127.0.0.1", 0)
    flags = f"dead=http://127.0.0.1:{hanging.sockets[0].getsockname()[1]},west={globe.rigs['west'].proxy.url()}"

    proxy = await globe.start(clusters=flags, health_interval=0.5)

    assert {(await globe.ask()).headers["x-flexinfer-cluster"] for _ in range(4)} == {"west"}
    assert proxy.clusters.members["dead"].health.failures >= 1
    hanging.close()
    for writer in held:
        writer.transport.abort()


async def test_clusters_behind_tls_are_trusted_by_their_ca_only(globe: Globe, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    engine = await globe.rigs["east"].engine(ssl=context, models=("far",))
    ask = post("/v1/chat/completions", chat("far"))

    await globe.start(clusters=f"far={engine.url}", clusters_ca=tmp_path / "ca.pem")
    trusted = await globe.ask(ask)
    await globe.start(clusters=f"far={engine.url}")
    distrusted = await globe.ask(ask)

    assert (trusted.status, trusted.headers["x-flexinfer-cluster"]) == (200, "far")
    assert distrusted.status == 503
    assert "certificate" in globe.made[-1].clusters.members["far"].health.error


async def test_a_model_that_fails_in_a_cluster_does_not_take_the_cluster_down(globe: Globe) -> None:
    proxy = await globe.start()
    await globe.rigs["east"].route(wakeable=True, failure="no node")

    for _ in range(8):
        assert (await globe.ask()).status == 200

    assert proxy.clusters.members["east"].health.up
    assert proxy.clusters.members["east"].health.failures == 0


async def test_a_balancer_that_answers_for_a_dead_cluster_does_take_it_down(globe: Globe) -> None:
    engine = await globe.rigs["east"].engine()
    engine.fault = Fault(status=503)
    proxy = await globe.start(clusters=f"plain={engine.url},west={globe.rigs['west'].proxy.url()}")
    engine.models = ("m",)
    await proxy.checks.all()

    for _ in range(8):
        assert (await globe.ask()).headers["x-flexinfer-cluster"] == "west"

    assert not proxy.clusters.members["plain"].health.up


async def test_a_request_at_a_cluster_that_hangs_goes_elsewhere_once_it_is_down(globe: Globe) -> None:
    east = globe.rigs["east"]
    east.engines[0].fault = Fault(first_byte_delay=60)
    proxy = await globe.start(strategy="failover", failover_order="east,west")
    asking = proxy._tasks.once("ask", globe.ask())
    await until(lambda: east.engines[0].totals.requests == 1)
    cluster = proxy.clusters.members["east"]
    cluster.urls = ("http://127.0.0.1:9",)  # its checks fail from now on; the request is still where it was

    for _ in range(3):
        await proxy.checks.one(cluster)
    proxy.connections.give_up_waiting(east.proxy.url(), "the cluster is down")

    answer = await asking
    assert (answer.status, answer.headers["x-flexinfer-cluster"]) == (200, "west")
