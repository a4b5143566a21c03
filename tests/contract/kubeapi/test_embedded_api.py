"""What only the embedded server has: its life, its kubeconfig, and misbehaviour on request."""

import asyncio
import stat
import time

import aiohttp
import pytest
import yaml

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.pace import Pace
from flexinfer.adapters.web.serve import PortBusy
from flexinfer.contracts.kubernetes import CONFIGMAPS, NAMESPACES, PODS, KubeDelta
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.ports import Conflict, Expired, Forbidden, KubeUnavailable, NotFound, Relisted


@pytest.fixture
async def api():
    api = await EmbeddedApi(history=20).start()
    yield api
    await api.stop()


@pytest.fixture
async def client(api, tmp_path):
    client = await KubeClient.connect(api.write_kubeconfig(tmp_path / "dir" / "kubeconfig"), timeout=5)
    yield client
    await client.aclose()


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def until(condition, deadline=10.0):
    async with asyncio.timeout(deadline):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def test_the_usual_namespaces_exist(client):
    names = {item["metadata"]["name"] for item in (await client.list(NAMESPACES)).items}
    assert {"default", "kube-system", "flexinfer-system"} <= names


async def test_the_kubeconfig_is_private_and_complete(api, tmp_path):
    path = api.write_kubeconfig(tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == f"{api.url}/{api.token}"
    assert config["users"][0]["user"]["token"] == api.token


async def test_the_token_in_the_path_opens_the_door_too(api):
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{api.url}/{api.token}/api/v1/pods") as answer:
            assert answer.status == 200
        async with session.get(f"{api.url}/{api.token}x/api/v1/pods") as answer:
            assert answer.status == 401
        async with session.get(f"{api.url}/api/v1/pods") as answer:
            assert answer.status == 401


async def test_a_busy_port_is_named():
    first = await EmbeddedApi().start()
    try:
        with pytest.raises(PortBusy, match=str(first.port)):
            await EmbeddedApi(port=first.port).start()
    finally:
        await first.stop()


async def test_the_state_outlives_a_stop(api, client):
    await client.create(CONFIGMAPS, config_map("a"), "default")
    port = api.port
    await api.stop()
    with pytest.raises(KubeUnavailable):
        await client.get(CONFIGMAPS, "a", "default")
    await api.start()
    assert api.port == port
    assert (await client.get(CONFIGMAPS, "a", "default"))["metadata"]["name"] == "a"


async def test_watches_end_cleanly_when_it_stops(api, client):
    start = (await client.list(CONFIGMAPS)).resource_version
    seen = []

    async def follow():
        async for kind, obj in client.watch(CONFIGMAPS, start):
            seen.append((kind, obj["metadata"].get("name")))

    task = asyncio.get_running_loop().create_task(follow())
    await client.create(CONFIGMAPS, config_map("a"), "default")
    await until(lambda: ("ADDED", "a") in seen)
    began = time.monotonic()
    await api.stop()
    await asyncio.wait_for(task, 5)
    assert time.monotonic() - began < 5


async def test_a_watch_from_forgotten_history_is_expired(api, client):
    start = (await client.list(CONFIGMAPS)).resource_version
    await client.create(CONFIGMAPS, config_map("a"), "default")
    api.expire("configmaps")
    with pytest.raises(Expired):
        await anext(client.watch(CONFIGMAPS, start))


async def test_history_is_bounded(api, client):
    start = (await client.list(CONFIGMAPS)).resource_version
    await client.create(CONFIGMAPS, config_map("a"), "default")
    for number in range(60):
        await client.patch(CONFIGMAPS, "a", {"data": {"n": str(number)}}, "default")
    with pytest.raises(Expired):
        await anext(client.watch(CONFIGMAPS, start))


async def test_a_version_of_another_life_is_expired(client):
    with pytest.raises(Expired):
        await anext(client.watch(CONFIGMAPS, "987654321"))


async def test_continue_tokens_expire(api):
    headers = {"Authorization": f"Bearer {api.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{api.url}/api/v1/namespaces", params={"limit": "1"}) as answer:
            token = (await answer.json())["metadata"]["continue"]
        api.expire()
        async with session.get(f"{api.url}/api/v1/namespaces", params={"limit": "1", "continue": token}) as answer:
            assert answer.status == 410
            assert (await answer.json())["reason"] == "Expired"


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, KubeUnavailable), (503, KubeUnavailable), (500, KubeUnavailable), (403, Forbidden), (409, Conflict)],
)
async def test_requests_fail_on_request(api, client, status, error):
    fault = api.faults.fail(status, r"^GET /api/v1/namespaces/default/configmaps/a$", retry_after=1)
    with pytest.raises(error):
        await client.get(CONFIGMAPS, "a", "default")
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, "a", "default")
    assert fault.struck == 1


async def test_connections_are_cut_on_request(api, client):
    api.faults.reset(r"/configmaps", times=None)
    with pytest.raises(KubeUnavailable):
        await client.get(CONFIGMAPS, "a", "default")
    assert (await client.list(PODS)).items == ()
    api.faults.clear()
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, "a", "default")


async def test_requests_hang_on_request(api, tmp_path):
    impatient = await KubeClient.connect(api.write_kubeconfig(tmp_path / "kubeconfig"), timeout=0.3)
    fault = api.faults.hang(r"^GET .*/configmaps")
    with pytest.raises(KubeUnavailable):
        await impatient.get(CONFIGMAPS, "a", "default")
    assert fault.struck == 1
    api.faults.clear()
    with pytest.raises(NotFound):
        await impatient.get(CONFIGMAPS, "a", "default")
    await impatient.aclose()


async def test_answers_are_late_on_request(api, client):
    api.faults.delay(0.2, r"/pods")
    began = time.monotonic()
    await client.list(PODS)
    assert time.monotonic() - began >= 0.2


class Follower:
    """An informer with what it delivered."""

    def __init__(self, client):
        self.facts = []
        # A pace of milliseconds: these tests are about what happens, not about how long clients wait.
        self.informer = Informer(client, CONFIGMAPS, self.facts.append, "default", pace=Pace(0.01, 0.05))
        self.task = asyncio.get_running_loop().create_task(self.informer.run())

    def names(self):
        return sorted(name for _, name in self.informer.cache)

    def deltas(self, action):
        return [f.name for f in self.facts if isinstance(f, KubeDelta) and f.action == action]

    def relists(self):
        return sum(isinstance(fact, Relisted) for fact in self.facts)

    async def close(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def follower(client):
    follower = Follower(client)
    await asyncio.wait_for(follower.informer.wait_synced(), 5)
    yield follower
    await follower.close()


async def test_an_informer_survives_dropped_watches(api, client, follower):
    await client.create(CONFIGMAPS, config_map("a"), "default")
    await until(lambda: follower.names() == ["a"])
    for drop in (api.drop_watches, api.end_watches):
        drop()
        name = f"after-{drop.__name__.replace('_', '-')}"
        await client.create(CONFIGMAPS, config_map(name), "default")
        await until(lambda name=name: name in follower.names())


async def test_an_informer_relists_and_diffs_after_410(api, client, follower):
    await client.create(CONFIGMAPS, config_map("a"), "default")
    await until(lambda: follower.names() == ["a"])
    relists = follower.relists()
    api.faults.fail(503, "watch$", times=None)
    api.drop_watches()
    await client.delete(CONFIGMAPS, "a", "default")
    await client.create(CONFIGMAPS, config_map("b"), "default")
    api.expire("configmaps")
    api.faults.clear()
    await until(lambda: follower.names() == ["b"])
    assert follower.relists() > relists
    assert "a" in follower.deltas("DELETED")


async def test_an_informer_survives_a_restart(api, client, follower):
    await client.create(CONFIGMAPS, config_map("a"), "default")
    await until(lambda: follower.names() == ["a"])
    await api.stop()
    await api.start()
    await client.create(CONFIGMAPS, config_map("b"), "default")
    await until(lambda: follower.names() == ["a", "b"])


async def test_logs_without_a_runner_say_so(api, client):
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await client.create(PODS, pod, "default")
    with pytest.raises(KubeUnavailable, match=r"501|no process runner"):
        await client.logs("default", "p")


async def test_logs_come_from_the_callable(api, client):
    seen = []

    async def logs(namespace, pod, container, options):
        seen.append((namespace, pod, container, dict(options)))
        if pod == "quiet":
            raise LookupError("container c is waiting to start")
        return "line é\n".encode()

    api.logs = logs
    for name in ("p", "quiet"):
        pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await client.create(PODS, pod, "default")
    assert await client.logs("default", "p", tail=5) == "line é\n"
    assert seen == [("default", "p", "c", {"tailLines": "5"})]
    with pytest.raises(Exception, match="waiting to start"):
        await client.logs("default", "quiet")


async def test_a_pod_of_several_containers_must_name_one(api, client):
    async def logs(_namespace, _pod, container, _options):
        return container.encode()

    api.logs = logs
    containers = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    await client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers}}, "default")
    with pytest.raises(Exception, match=r"choose one of: \[a b\]"):
        await client.logs("default", "p")
    assert await client.logs("default", "p", "b") == "b"


async def test_followed_logs_stream(api):
    release = asyncio.Event()

    async def logs(_namespace, _pod, _container, options):
        assert options["follow"] == "true"

        async def parts():
            yield b"first\n"
            await release.wait()
            yield b"second\n"

        return parts()

    api.logs = logs
    headers = {"Authorization": f"Bearer {api.token}"}
    pods = f"{api.url}/api/v1/namespaces/default/pods"
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.post(pods, json=body) as answer:
            assert answer.status == 201
        async with session.get(f"{pods}/p/log", params={"follow": "true"}) as answer:
            async with asyncio.timeout(60):
                assert await answer.content.readline() == b"first\n"
                release.set()
                assert await answer.content.readline() == b"second\n"
                assert await answer.content.read() == b""


async def test_protobuf_bodies_are_refused(api):
    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/vnd.kubernetes.protobuf"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{api.url}/api/v1/namespaces/default/configmaps", data=b"k8s\x00") as answer,
    ):
        assert answer.status == 415
        body = await answer.json()
    assert body["reason"] == "UnsupportedMediaType"
    assert "not protobuf" in body["message"]
