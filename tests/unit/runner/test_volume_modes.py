"""Files of volumes have the modes that the pod asks for."""

import stat
from pathlib import Path
from typing import Any

from flexinfer.local.runner.downward import PodFacts
from flexinfer.local.runner.volumes import Places, provide


class Content:
    """Stands for the API: every ConfigMap and Secret holds the same two keys."""

    async def content(self, *_names: object) -> dict[str, bytes]:
        return {"a": b"1", "b": b"2"}


async def _modes(tmp_path: Path, volume: dict[str, Any]) -> dict[str, str]:
    pod = {"metadata": {"namespace": "n", "name": "p"}, "spec": {"volumes": [{"name": "v", **volume}]}}
    facts = PodFacts(pod, "127.1.1.1", "127.0.0.1", "node", {})
    places = Places(tmp_path / "pod", tmp_path / "claims", {})
    for _again in range(2):  # a try that failed half-way is repeated
        found = await provide(facts, places, Content())  # type: ignore[arg-type]
    return {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in found["v"].iterdir()}


async def test_default_mode_of_a_secret_holds_for_every_file(tmp_path: Path):
    assert await _modes(tmp_path, {"secret": {"secretName": "s", "defaultMode": 0o440}}) == {"a": "0o440", "b": "0o440"}


async def test_an_item_may_have_its_own_mode(tmp_path: Path):
    items = [{"key": "a", "path": "x", "mode": 0o400}, {"key": "b", "path": "y"}]
    assert await _modes(tmp_path, {"configMap": {"name": "c", "items": items}}) == {"x": "0o400", "y": "0o644"}


async def test_a_projected_volume_has_one_default_for_all_sources(tmp_path: Path):
    sources = [{"secret": {"name": "s"}}, {"configMap": {"name": "c", "items": [{"key": "a", "path": "c"}]}}]
    found = await _modes(tmp_path, {"projected": {"sources": sources, "defaultMode": 0o600}})
    assert found == {"a": "0o600", "b": "0o600", "c": "0o600"}
