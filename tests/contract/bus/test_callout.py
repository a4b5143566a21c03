"""The auth callout: a real server asks, what signs the answer asks a Kubernetes API over HTTP."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import nkeys
import pytest
from aiohttp import web

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.bus.nats.callout import Callout
from flexinfer.adapters.bus.nats.signing import Signer
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.config.common import BusSettings
from flexinfer.contracts.events import Endpoint, ModelEndpoint, NodeHardware
from flexinfer.contracts.permissions import Grant, permissions
from flexinfer.contracts.topics import TOPICS, Topic, bucket_name, key_pattern, sampled_subject
from flexinfer.core.lifecycle.callers import House
from flexinfer.core.lifecycle.naming import job_name
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.runtime.admitting import Door
from flexinfer.runtime.clock import SystemClock
from flexinfer.telemetry.metrics import value_of
from flexinfer.testing.bus import stepping_mint, until

OURS, KEY = "flexinfer-system", "smol-0123456789ab"
AGENT, OLD_AGENT = "eyJhbGci.agent-of-n1.sig", "eyJhbGci.agent-on-an-older-cluster.sig"
BENCH, STRANGER, OTHER_AUDIENCE = "eyJhbGci.bench.sig", "eyJhbGci.stranger.sig", "eyJhbGci.for-the-api.sig"
BENCH_POD = ("default", "bench-pod", "uid-bench")


def review(account: str, pod: tuple[str, str, str], node: str = "", audience: str = "flexinfer-bus") -> dict[str, Any]:
    namespace, name, uid = pod
    extra = {"pod-name": [name], "pod-uid": [uid]} | ({"node-name": [node]} if node else {})
    user = {
        "username": f"system:serviceaccount:{namespace}:{account}",
        "extra": {f"authentication.kubernetes.io/{key}": value for key, value in extra.items()},
    }
    return {"authenticated": True, "audiences": [audience], "user": user}


class FakeApi:
    """TokenReviews by token, and the pods and claims there are."""

    def __init__(self) -> None:
        self.reviews = {
            AGENT: review("flexinfer-agent", (OURS, "agent-1", "uid-1"), "n1.example.com"),
            OLD_AGENT: review("flexinfer-agent", (OURS, "agent-2", "uid-2")),
            BENCH: review("default", BENCH_POD, "n1.example.com"),
            STRANGER: review("default", ("default", "web", "uid-web"), "n1.example.com"),
            OTHER_AUDIENCE: review("flexinfer-agent", (OURS, "agent-1", "uid-1"), "n1.example.com", "https://api"),
        }
        labels = {"flexinfer.ai/bench-key": KEY}
        job = [{"kind": "Job", "name": job_name(KEY), "uid": "uid-job", "controller": True}]
        claim = {
            "metadata": {"namespace": OURS, "name": KEY, "labels": {"app": "flexinfer-benchmark-claims"}},
            "data": {"jobUid": "uid-job"},
        }
        self.objects = {
            ("pods", OURS, "agent-2"): {"metadata": {"uid": "uid-2"}, "spec": {"nodeName": "n2"}},
            ("pods", *BENCH_POD[:2]): {"metadata": {"uid": BENCH_POD[2], "labels": labels, "ownerReferences": job}},
            ("pods", "default", "web"): {"metadata": {"uid": "uid-web", "labels": labels}},
            ("configmaps", OURS, KEY): claim,
        }
        self.asked: list[str] = []

    async def create(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        assert spec["audiences"] == ["flexinfer-bus"]
        self.asked.append(spec["token"])
        return web.json_response({"status": self.reviews.get(spec["token"], {"error": "unknown"})}, status=201)

    async def list(self, request: web.Request) -> web.Response:
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        found = self.objects.get((request.match_info["plural"], request.match_info["namespace"], name))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [found] if found else []})


def outcomes(outcome: str) -> float:
    return value_of("flexinfer_bus_callout_total", {"outcome": outcome})


class Entrance:
    """A server with a callout, one static user, and the service that answers it."""

    def __init__(self, folder: Path, server: NatsServer, api: FakeApi, client: KubeClient, signer: Signer) -> None:
        self.folder, self.server, self.api = folder, server, api
        self.callout = Callout(signer, Door(client, House(OURS, "default", "flexinfer-agent")).admit, SystemClock())
        self.buses: list[NatsBus] = []

    async def serve(self) -> None:
        settings = BusSettings(nats_url=self.server.url, nats_credentials=self.file("manager", "manager:pw"))
        self.callout.start(settings, "flexinfer-manager test callout")
        await until(lambda: self.callout.serving)

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name.replace(" ", "-")
        path.write_text(text)
        return path

    async def join(self, name: str, credentials: str) -> NatsBus:
        bus = await NatsBus.start(self.server.url, name=name, credentials=self.file(name, credentials))
        self.buses.append(bus)
        return bus

    async def manager(self) -> NatsBus:
        bus = await self.join("flexinfer-manager test", "manager:pw")
        await until(lambda: bus.connected)
        await bus.ensure()
        return bus

    async def refused(self, token: str, reason: str) -> None:
        """One attempt, refused for this reason."""
        before = outcomes(reason)
        assert await verdict(self.server, "me", token) == "-ERR 'Authorization Violation'"
        assert outcomes(reason) == before + 1


class Wire:
    """A client without a library: nothing is restrained, buffered or tried again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def login(cls, server: NatsServer, user: str, password: str) -> tuple["Wire", str]:
        """What the server says to it: PONG, or why not."""
        made = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        await made._reader.readline()
        asked = {"user": user, "pass": password, "verbose": False, "protocol": 1, "lang": "test", "version": "0"}
        made._writer.write(b"CONNECT " + msgspec.json.encode(asked) + b"\r\nPING\r\n")
        async with asyncio.timeout(60):
            said = (await made._reader.readline()).decode().strip()
        return made, said

    async def refused(self, *lines: str) -> list[str]:
        """What the server denies of these, in order."""
        self._writer.write("".join(f"{line}\r\n" for line in (*lines, "PING")).encode())
        found = []
        async with asyncio.timeout(60):
            while (said := (await self._reader.readline()).decode().strip()) != "PONG":
                if said.startswith("INFO "):  # servers tell a client about its connection when they like
                    continue
                assert said.startswith("-ERR 'Permissions Violation for "), said
                found.append(said.split('"')[1])
        return found

    async def denied(self, *subjects: str) -> list[str]:
        """Which of these it may not publish."""
        return await self.refused(*(f"PUB {subject} 2\r\n{{}}" for subject in subjects))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def verdict(server: NatsServer, user: str, password: str) -> str:
    client, said = await Wire.login(server, user, password)
    await client.close()
    return said


async def plain(server: NatsServer, token: str) -> Wire:
    client, said = await Wire.login(server, "me", token)
    assert said == "PONG"
    return client


@pytest.fixture
async def door(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Entrance]:
    api, port = FakeApi(), free_port("127.0.0.1")
    app = web.Application()
    app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", api.create)
    app.router.add_get("/api/v1/namespaces/{namespace}/{plural}", api.list)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    cluster = {"cluster": {"server": f"http://127.0.0.1:{port}"}, "name": "c"}
    context = {"context": {"cluster": "c", "user": "u"}, "name": "c"}
    kubeconfig = {"current-context": "c", "clusters": [cluster], "contexts": [context], "users": [{"name": "u"}]}
    (tmp_path / "kubeconfig").write_bytes(msgspec.json.encode(kubeconfig))
    (tmp_path / "seed").write_bytes(base64.b64encode(bytes(range(32))))
    client, signer = await KubeClient.connect(tmp_path / "kubeconfig"), Signer.read(tmp_path / "seed")
    rights = permissions("manager", "flexinfer-manager *")
    lists = msgspec.json.encode({"publish": rights.publish, "subscribe": rights.subscribe}).decode()
    options = f"""authorization {{
      timeout: {getattr(request, "param", 60)}
      users: [{{ user: manager, password: pw, permissions: {lists} }}]
      auth_callout {{ issuer: {signer.issuer}, auth_users: [manager] }}
    }}"""
    server = await NatsServer(tmp_path / "nats", options=options).start()
    made = Entrance(tmp_path, server, api, client, signer)
    yield made
    for bus in made.buses:
        await bus.close()
    await made.callout.close()
    await server.stop()
    await client.aclose()
    await runner.cleanup()


def subjects(topic: Topic, entity: str) -> list[str]:
    """Everything a producer writes about one entity: live, sampled, state."""
    found = [f"flexinfer.v1.default.{topic.wildcard}"]
    if topic.log == "sampled":
        found.append(sampled_subject(found[0]))
    if topic.bucket:
        found.append(f"$KV.{bucket_name(topic.bucket)}.{key_pattern(topic)}")
    return [subject.replace("*", entity, 1).replace("*", "x") for subject in found]


def of(producer: str, entity: str) -> list[str]:
    return [subject for topic in TOPICS.values() if topic.producer == producer for subject in subjects(topic, entity)]


async def test_an_agent_says_what_its_own_node_says_and_nothing_else(door: Entrance) -> None:
    await door.serve()
    manager = await door.manager()
    agent = await door.join("flexinfer-agent n1.example.com", AGENT)
    await until(lambda: agent.connected)
    await agent.publish(stepping_mint().mint(NodeHardware(node="n1.example.com")), durable=True)
    [event] = await manager.state((NodeHardware,))
    assert event.data.node == "n1.example.com"

    client = await plain(door.server, AGENT)
    own, others = of("agent", "n1_example_com"), [*of("agent", "n2"), *of("agent", "n1_example_com.more")]
    foreign = [subject for producer in ("bench", "manager", "proxy", "scheduler") for subject in of(producer, "x")]
    assert len(own) >= 7
    assert len(foreign) >= 15
    assert await client.denied(*own) == []
    assert await client.denied(*others, *foreign) == [*others, *foreign]
    control = ["$SYS.REQ.USER.AUTH", "$SYS._INBOX.a.b", "$JS.API.STREAM.DELETE.FLEXINFER_LOG"]
    assert await client.denied(*control) == control
    heard = ["flexinfer.v1.default.>", "_INBOX_flexinfer-agent.n2.>", "$SYS.REQ.USER.AUTH", ">"]
    assert await client.refused(*(f"SUB {subject} {number}" for number, subject in enumerate(heard))) == heard
    await client.close()


async def test_on_a_cluster_whose_tokens_name_no_node_the_pod_does(door: Entrance) -> None:
    await door.serve()
    client = await plain(door.server, OLD_AGENT)
    assert await client.denied(*of("agent", "n2")) == []
    assert await client.denied(*of("agent", "n1")) == of("agent", "n1")
    await client.close()


async def test_a_benchmark_speaks_for_its_own_key_and_reads_where_it_runs(door: Entrance) -> None:
    await door.serve()
    manager = await door.manager()
    for key in (KEY, "other-0123456789ab"):
        replica = Endpoint(url="http://10.0.0.1:80", pod="p", node="n1", device_class="c")
        told = ModelEndpoint(
            namespace="default", model=job_name(key), backend="llamacpp", endpoints=(replica,), hidden=True
        )
        await manager.publish(stepping_mint().mint(told), durable=True)
    bench = await door.join(f"flexinfer-bench {KEY}", BENCH)
    await until(lambda: bench.connected)
    [event] = await bench.state((ModelEndpoint,), ("default", job_name(KEY)))
    assert event.data.endpoints[0].node == "n1"

    client = await plain(door.server, BENCH)
    own, others = of("bench", KEY), [*of("bench", "other-0123456789ab"), *of("agent", "n1"), *of("manager", KEY)]
    assert await client.denied(*own) == []
    assert await client.denied(*others) == others
    await client.close()


async def test_everybody_else_stays_out_and_no_token_is_written(
    door: Entrance, caplog: pytest.LogCaptureFixture
) -> None:
    await door.serve()
    agent = await door.join("flexinfer-agent n1.example.com", AGENT)
    await until(lambda: agent.connected)  # somebody answers

    await door.refused("eyJhbGci.never-issued.sig", "token")
    await door.refused("", "token")
    await door.refused(OTHER_AUDIENCE, "audience")
    await door.refused(STRANGER, "stranger")
    claim = door.api.objects[("configmaps", OURS, KEY)]
    claim["data"]["jobUid"] = "uid-of-another-job"
    await door.refused(BENCH, "stranger")
    claim["data"]["jobUid"] = "uid-job"
    claim["metadata"]["labels"]["app"] = "something-else"
    await door.refused(BENCH, "stranger")
    door.api.objects[("pods", *BENCH_POD[:2])]["metadata"]["uid"] = "uid-of-a-later-pod"
    await door.refused(BENCH, "pod")

    assert "may not connect to the bus" in caplog.text
    written = caplog.text + door.server.log_file.read_text()
    assert not any(token in written for token in (AGENT, BENCH, STRANGER, OTHER_AUDIENCE, "never-issued"))


async def test_a_password_of_a_component_is_checked_by_the_server_alone(door: Entrance) -> None:
    await door.serve()
    manager = await door.manager()
    assert manager.connected
    assert await verdict(door.server, "manager", AGENT) == "-ERR 'Authorization Violation'"
    assert door.api.asked == []


@pytest.mark.parametrize("door", [1, 60], indirect=True)
async def test_without_the_service_components_connect_and_agents_come_when_it_is_back(door: Entrance) -> None:
    agent = await door.join("flexinfer-agent n1.example.com", AGENT)
    manager = await door.manager()
    assert manager.connected
    assert not agent.connected
    await door.serve()
    await until(lambda: agent.connected)
    await door.callout.close()
    await agent.publish(stepping_mint().mint(NodeHardware(node="n1.example.com")), durable=True)
    assert agent.connected


async def test_each_connection_shows_the_token_of_its_day(door: Entrance) -> None:
    await door.serve()
    agent = await door.join("flexinfer-agent n1.example.com", AGENT)
    await until(lambda: agent.connected)
    renewed = "eyJhbGci.agent-renewed.sig"
    door.api.reviews[renewed] = door.api.reviews.pop(AGENT)
    door.file("flexinfer-agent n1.example.com", renewed)
    await door.server.kill()
    await until(lambda: not agent.connected)
    await door.server.start()
    await until(lambda: agent.connected)
    assert set(door.api.asked) == {AGENT, renewed}


async def test_what_was_granted_ends_and_is_asked_for_again(tmp_path: Path, door: Entrance) -> None:
    before = outcomes("granted")

    async def decide(_token: str) -> Grant:
        return Grant("short", permissions("agent", "flexinfer-agent n1", "n1"), 4.0)

    callout = Callout(Signer.read(tmp_path / "seed"), decide, SystemClock())
    callout.start(
        BusSettings(nats_url=door.server.url, nats_credentials=door.file("manager", "manager:pw")),
        "flexinfer-manager x",
    )
    await until(lambda: callout.serving)
    agent = await door.join("flexinfer-agent n1", AGENT)
    await until(lambda: outcomes("granted") >= before + 2)
    await until(lambda: agent.connected)
    await callout.close()


async def test_a_question_that_is_none_is_dropped(door: Entrance) -> None:
    await door.serve()
    agent = await door.join("flexinfer-agent n1.example.com", AGENT)
    await until(lambda: agent.connected)
    before = outcomes("malformed")
    for raw in (b"", b"a.b.c", b"e30.e30.e30", b"x" * 100):
        assert await door.callout._decided(raw) is None
    assert outcomes("malformed") == before + 4


def test_keys_are_read_in_both_forms_and_nothing_else(tmp_path: Path) -> None:
    raw, file = bytes(range(32)), tmp_path / "seed"
    file.write_bytes(base64.b64encode(raw))
    issuer = Signer.read(file).issuer
    assert issuer.startswith("A")
    assert len(issuer) == 56
    file.write_bytes(nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_ACCOUNT) + b"\n")
    assert Signer.read(file).issuer == issuer
    for wrong in (
        b"",
        b"hello",
        base64.b64encode(raw[:31]),
        nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER),
        b"SA" * 29,
    ):
        file.write_bytes(wrong)
        with pytest.raises(ValueError, match="holds neither"):
            Signer.read(file)


async def test_many_at_once_are_all_answered(door: Entrance) -> None:
    """A fleet after an outage: more than are decided at once."""
    await door.serve()
    clients = await asyncio.gather(*(plain(door.server, AGENT) for _ in range(100)))
    await asyncio.gather(*(client.close() for client in clients))
