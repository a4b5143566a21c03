"""Weights that cannot be had: the real init step in the real process runner, and what people read of it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flexinfer.contracts.kubernetes import EVENTS, PODS
from flexinfer.core.lifecycle.fetching.failures import REMEDIES
from flexinfer.local.control_plane import image_table
from flexinfer.local.processes import Reaper
from flexinfer.local.runner import ProcessRunner
from flexinfer.ports import KubeError

sys.path.insert(0, str(Path(__file__).parents[2] / "contract" / "weights"))

from hubs import Hub, wrong

DATA = b"GGUF" + bytes(5000)


async def too_large(request: web.Request) -> web.StreamResponse | None:
    """The listing of a repository with a file of a million GB."""
    if "/api/models/o/large/tree/" not in request.path:
        return None
    lfs = {"oid": "0" * 64, "size": 10**15, "pointerSize": 130}
    return web.json_response([{"type": "file", "path": "m.gguf", "oid": "1" * 40, "size": 10**15, "lfs": lfs}])


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    found = Hub(files={f"o/{name}/m.gguf": DATA for name in ("spoilt", "large", "private")})
    found.faults = [too_large, wrong("/cdn/o/spoilt/", bytes(len(DATA)))]
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def runner(world: Any, tmp_path: Path) -> AsyncIterator[None]:
    reaper = await Reaper.start()
    found = ProcessRunner(world.api, "n1", image_table(), tmp_path / "pods", reaper=reaper)
    await found.start()
    yield
    await found.stop()
    await reaper.close()


def source_of(reason: str) -> str:
    return {
        "SourceNotFound": "hf://o/gone/m.gguf",
        "DigestMismatch": "hf://o/spoilt/m.gguf",
        "DiskFull": "hf://o/large/m.gguf",
        "SecretMissing": "hf://o/private/m.gguf",
        "Unmounted": "file:///nowhere/at/all/m.gguf",
    }[reason]


async def bind(world: Any) -> None:
    """Every pod to the one node, as the scheduler would."""
    for pod in (await world.api.list(PODS, "default")).items:
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            body = {
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"], "namespace": "default"},
                "target": {"kind": "Node", "name": "n1"},
            }  # fmt: skip
            with suppress(KubeError):
                await world.api.create(PODS, body, "default", "binding")


@pytest.mark.usefixtures("runner")
async def test_each_failure_is_a_condition_an_event_and_a_remedy(world: Any, hub: Hub, tmp_path: Path) -> None:
    world.kubelet.schedule = False
    world.settings = world.settings.model_copy(
        update={"fetch_image": "flexinfer/flexinfer:1", "node_cache": str(tmp_path / "cache")}
    )
    await world.node()
    world.manage()
    expected = {name.lower(): name for name in ("SourceNotFound", "DigestMismatch", "DiskFull", "SecretMissing")}
    expected["unmounted"] = "SourceNotFound"
    for name, reason in expected.items():
        spec = {
            "backend": "llamacpp", "model": source_of(reason if name != "unmounted" else "Unmounted"),
            "gpu": {"vendor": "cpu"}, "benchmark": {"enabled": False},
            "env": [{"name": "HF_ENDPOINT", "value": hub.url}],
            **({"sourceSecret": "hub-token"} if name == "secretmissing" else {}),
        }  # fmt: skip
        await world.apply(name, spec)

    seen: dict[str, str] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(150):
            while {name: text.partition(" ")[0] for name, text in seen.items()} != expected:
                await bind(world)
                for name in expected:
                    conditions = (await world.get(name)).get("status", {}).get("conditions", [])
                    told = next((c for c in conditions if c["type"] == "Available"), {"reason": "", "message": ""})
                    seen[name] = f"{told['reason']} {told['message']}"
                await asyncio.sleep(0.1)
    assert {name: text.partition(" ")[0] for name, text in seen.items()} == expected, seen

    for name, reason in expected.items():
        remedy = "put the weights there" if name == "unmounted" else REMEDIES[reason]
        assert remedy in seen[name]
    assert "hub-token" in seen["secretmissing"]

    async def events() -> set[tuple[str, str]]:
        found = (await world.api.list(EVENTS, "default")).items
        return {(e["regarding"]["name"], e["reason"]) for e in found if e["regarding"]["kind"] == "ModelDeployment"}

    async with asyncio.timeout(60):
        while not set(expected.items()) <= await events():  # noqa: ASYNC110 - only a list tells
            await asyncio.sleep(0.1)
    assert not list((tmp_path / "cache" / "entries").iterdir()), "partial files are never used"
