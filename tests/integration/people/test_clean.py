"""``flexinfer clean`` against an API: what goes, what stays, and when nothing is touched."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.apps import clean
from flexinfer.config.people import CleanSettings
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.kubernetes import CRDS, MODELDEPLOYMENTS, MODELS, NODES, PODS
from flexinfer.contracts.labels import FINALIZER
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.ports import NotFound

SYSTEM = "flexinfer-system"
LABELS = {"flexinfer.ai/gpu.count": "1", "flexinfer.ai/enabled": "true", "zone": "a"}
ANNOTATIONS = {"flexinfer.ai/gpu.util": "3", "flexinfer.ai/cost": "1.5"}
SPEC = {"backend": "llamacpp", "model": "file:///models/tiny.gguf", "image": "engine:1"}


@dataclass
class World:
    api: KubeClient
    kubeconfig: Path

    async def run(self, **more: Any) -> int:
        return await clean.run(CleanSettings(kubeconfig=self.kubeconfig, **{"wait": 0, **more}))

    async def metadata(self, name: str = "n") -> dict[str, Any]:
        return dict((await self.api.get(NODES, name))["metadata"])

    async def agent(self) -> None:
        labels = {"app.kubernetes.io/part-of": "flexinfer", "app.kubernetes.io/component": "agent"}
        body = {
            "metadata": {"name": "flexinfer-agent-x", "labels": labels},
            "spec": {"nodeName": "n", "containers": [{"name": "agent", "image": "a:1"}]},
        }
        await self.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body}, SYSTEM)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """One node as an agent left it, one model that holds on."""
    server = EmbeddedApi()
    await server.start()
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    api = await KubeClient.connect(path)
    try:
        for crd in crd_manifests():
            await api.create(CRDS, crd)
        meta = {"name": "n", "labels": LABELS, "annotations": ANNOTATIONS}
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        await api.create(
            MODELDEPLOYMENTS,
            {"apiVersion": MODELDEPLOYMENTS.api_version, "kind": MODELDEPLOYMENTS.kind,
             "metadata": {"name": "m", "finalizers": [FINALIZER, "example.com/other"]}, "spec": SPEC},
            "default",
        )  # fmt: skip
        yield World(api, path)
    finally:
        await api.aclose()
        await server.stop()


async def test_what_agents_wrote_goes_and_what_people_set_stays(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await world.run() == 0

    found = await world.metadata()
    assert {key for key in found["labels"] if key in LABELS} == {"flexinfer.ai/enabled", "zone"}
    assert found["annotations"] == {"flexinfer.ai/cost": "1.5"}
    model = await world.api.get(MODELDEPLOYMENTS, "m", "default")
    assert model["metadata"]["finalizers"] == ["example.com/other"]
    said = capsys.readouterr().out
    assert "node n: removed flexinfer.ai/gpu.count, flexinfer.ai/gpu.util" in said
    assert "ModelDeployment default/m: removed the finalizer; it stays, and can be deleted" in said


async def test_a_dry_run_says_it_and_leaves_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = await world.metadata()

    assert await world.run(dry_run=True) == 0

    assert await world.metadata() == before
    assert "node n: would remove flexinfer.ai/gpu.count" in capsys.readouterr().out


async def test_nothing_is_touched_while_agents_run(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.agent()
    before = await world.metadata()

    assert await world.run() == 1

    assert await world.metadata() == before
    assert "flexinfer-agent-x" in capsys.readouterr().err


async def test_an_agent_that_ends_is_waited_for_and_one_that_cannot_end_is_not(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.agent()
    await world.api.delete(PODS, "flexinfer-agent-x", SYSTEM, grace_seconds=600)

    assert await world.run() == 0

    assert "1 pod(s) have not ended" in capsys.readouterr().out
    assert "flexinfer.ai/gpu.count" not in (await world.metadata())["labels"]


async def test_models_are_a_reason_to_refuse_where_their_kind_would_go(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await world.run(refuse_models=True) == 1
    assert "take 1 model(s) along: ModelDeployment default/m" in capsys.readouterr().err

    assert await world.run() == 0
    await world.api.patch(MODELDEPLOYMENTS, "m", {"metadata": {"finalizers": None}}, "default")
    await world.api.delete(MODELDEPLOYMENTS, "m", "default")
    assert await world.run(refuse_models=True) == 0


async def test_a_model_that_was_asked_to_go_goes(world: World) -> None:
    body = {"apiVersion": MODELS.api_version, "kind": MODELS.kind, "metadata": {"name": "w", "finalizers": [FINALIZER]},
            "spec": {"backend": "llamacpp", "source": "file:///models/tiny.gguf", "image": "engine:1"}}  # fmt: skip
    await world.api.create(MODELS, body, "default")
    await world.api.delete(MODELS, "w", "default")

    assert await world.run() == 0

    with pytest.raises(NotFound):
        await world.api.get(MODELS, "w", "default")


async def test_without_an_api_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await clean.run(CleanSettings(kubeconfig=tmp_path / "none")) == 1

    assert "flexinfer clean: " in capsys.readouterr().err
