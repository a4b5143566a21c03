"""etcd forgets the past while an informer is cut off: the real 410, and nothing that happened meanwhile is missed."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from rig import ADMIN, Rig

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.contracts.kubernetes import CONFIGMAPS
from flexinfer.ports import KubeFact, Relisted
from flexinfer.runtime.tasks import Supervisor
from flexinfer.telemetry.metrics import value_of
from tests.faults.links import Link

NAMESPACE = "compacted"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DEADLINE = 180.0


@pytest.fixture
async def link(rig: Rig) -> AsyncIterator[Link]:
    made = await Link(rig.ports["api"]).start()
    yield made
    await made.stop()


def etcd(rig: Rig, call: str, body: dict[str, Any]) -> dict[str, Any]:
    """One call of etcd's JSON gateway."""
    url = f"http://127.0.0.1:{rig.ports['etcd']}/v3/kv/{call}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def write(rig: Rig, method: str, name: str, **data: str) -> None:
    body = {"metadata": {"name": name}, "data": data} if method != "DELETE" else None
    rig.call(method, PATH if method == "POST" else f"{PATH}/{name}", body)


async def test_a_watch_from_before_a_compaction_is_410_and_everything_is_listed_again(rig: Rig, link: Link) -> None:
    await asyncio.to_thread(rig.call, "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name in ("stays", "changes", "goes"):
        await asyncio.to_thread(write, rig, "POST", name, value="before")
    config = yaml.safe_load(rig.kubeconfig(ADMIN).read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{link.port}"
    path = rig.root / "kubeconfig-compacted"
    path.write_text(yaml.safe_dump(config))
    api = await KubeClient.connect(path)
    held: dict[str, str] = {}
    told: list[str] = []

    def sink(fact: KubeFact) -> None:
        for obj in fact.objects if isinstance(fact, Relisted) else (fact.object,):
            name, gone = obj["metadata"]["name"], not isinstance(fact, Relisted) and fact.action == "DELETED"
            told.append(f"{name} {'gone' if gone else (obj.get('data') or {}).get('value', '')}")
            held.pop(name, None) if gone else held.update({name: told[-1]})

    informer = Informer(api, CONFIGMAPS, sink, namespace=NAMESPACE)
    tasks = Supervisor("compaction")
    tasks.forever("informer", informer.run)
    await asyncio.wait_for(informer.wait_synced(), DEADLINE)
    expired = value_of("flexinfer_kube_watch_restarts_total", {"kind": "ConfigMap", "reason": "expired"})

    link.refusing = True
    link.cut()
    await asyncio.to_thread(write, rig, "PATCH", "changes", value="after")
    await asyncio.to_thread(write, rig, "DELETE", "goes")
    await asyncio.to_thread(write, rig, "POST", "comes", value="new")
    revision = (await asyncio.to_thread(etcd, rig, "range", {"key": "AA=="}))["header"]["revision"]
    await asyncio.to_thread(etcd, rig, "compaction", {"revision": revision, "physical": True})
    # Its cache of recent events would answer for etcd. Not in a thread: the server dies with the one that forked it.
    rig.restart_apiserver()
    link.heal()

    async with asyncio.timeout(DEADLINE):
        while "comes new" not in told:  # noqa: ASYNC110 - the sink is called by another task
            await asyncio.sleep(0.05)
    assert {name: text for name, text in held.items() if name != "kube-root-ca.crt"} == {
        "stays": "stays before", "changes": "changes after", "comes": "comes new",
    }  # fmt: skip
    assert "goes gone" in told
    assert value_of("flexinfer_kube_watch_restarts_total", {"kind": "ConfigMap", "reason": "expired"}) > expired
    await tasks.close()
    await api.aclose()
