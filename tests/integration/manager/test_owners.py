"""Whose a child is: lost owners come back, names of others are left alone, a renamed model keeps nothing and loses
nothing."""

import asyncio
from typing import Any

from flexinfer.contracts.kubernetes import DEPLOYMENTS, JOBS, MODELDEPLOYMENTS, SERVICES

OFF = {"enabled": False}
SPEC = {"backend": "llamacpp", "model": "file:///m/x.gguf", "gpu": {"vendor": "cpu"}, "benchmark": OFF}


async def test_a_child_that_lost_its_owner_is_taken_back_as_it_is(world: Any) -> None:
    await world.node()
    world.manage()
    await world.apply(spec=SPEC)
    owner = (await world.phase("Running"))["metadata"]["uid"]
    before = await world.api.get(DEPLOYMENTS, "m", "default")

    for resource in (DEPLOYMENTS, SERVICES):
        await world.api.patch(resource, "m", {"metadata": {"ownerReferences": []}}, "default")
        async with asyncio.timeout(30):
            while True:
                found = (await world.api.get(resource, "m", "default"))["metadata"].get("ownerReferences") or []
                if [entry["uid"] for entry in found] == [owner]:
                    break
                await asyncio.sleep(0.02)

    after = await world.api.get(DEPLOYMENTS, "m", "default")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]


async def test_a_name_that_is_taken_is_said_and_given_when_it_is_free(world: Any) -> None:
    await world.node()
    theirs = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m", "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "theirs"}]}}},
    }  # fmt: skip
    await world.api.create(DEPLOYMENTS, theirs, "default")
    world.manage()
    await world.apply(spec=SPEC)
    found = await world.phase("Failed")
    available = next(c for c in found["status"]["conditions"] if c["type"] == "Available")
    assert available["reason"] == "NameTaken"
    kept = await world.api.get(DEPLOYMENTS, "m", "default")
    assert kept["spec"]["template"]["spec"]["containers"][0]["image"] == "theirs"

    await world.api.delete(DEPLOYMENTS, "m", "default")
    await world.phase("Running")


async def test_a_renamed_model_is_a_new_one_that_is_not_measured_again(world: Any) -> None:
    await world.node()
    world.manage()
    await world.apply("old")
    await world.phase("Running", "old")
    await world.recorded()
    await world.apply("new")
    await world.api.delete(MODELDEPLOYMENTS, "old", "default")
    await world.gone("old")
    await world.phase("Running", "new")

    names = {d["metadata"]["name"] for d in (await world.api.list(DEPLOYMENTS, "default")).items}
    assert names == {"new"}
    await world.count(JOBS, 0)
    assert len(await world.recorded()) == 1
