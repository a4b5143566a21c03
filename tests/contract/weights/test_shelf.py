"""The cache of a node as its agent keeps it."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from hubs import Hub

from flexinfer.adapters.weights.disk import Cache
from flexinfer.adapters.weights.shelf import STALE_SECONDS, Shelf
from flexinfer.contracts.events import CachedModel, Cpu, NodeHardware
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.lifecycle.sources import parse_source
from flexinfer.ports import Relisted
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.caching import CacheKeeper
from flexinfer.runtime.agent.pods import PodWatch

NOW = 1_800_000_000.0


class Clock:
    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return 0.0


def shelve(root: Path, name: str, size: int, used: float) -> None:
    folder = root / "entries" / name
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(size))
    (folder / ".flexinfer.json").write_text(json.dumps({"source": f"hf://o/{name}", "bytes": size}))
    for other in ("locks", "uses", "parts"):
        (root / other).mkdir(exist_ok=True)
    (root / "uses" / name).touch()
    os.utime(root / "uses" / name, (used, used))


def board() -> Board:
    found = Board(Station("n1", "flexinfer.ai/", "0", 30.0, 2.0), Cpu())
    found.hardware = NodeHardware(node="n1")
    return found


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "entries").iterdir())


async def test_what_is_here_travels_with_the_hardware(tmp_path: Path) -> None:
    shelve(tmp_path, "a", 10, NOW)
    (tmp_path / "entries" / "half").mkdir()
    told = board()
    changed = told.listen()
    keeper = CacheKeeper(told, Shelf(tmp_path), frozenset, Clock(), 0, 0)
    await keeper.look()

    assert told.hardware is not None
    assert told.hardware.cached == (CachedModel(entry="a", source="hf://o/a", bytes=10),)
    assert changed.is_set()
    changed.clear()
    await keeper.look()
    assert not changed.is_set(), "nothing new, nothing told"


async def test_it_keeps_its_limit_and_what_pods_use(tmp_path: Path) -> None:
    for name, used in (("a", NOW - 9000), ("b", NOW - 8000), ("c", NOW - 7000)):
        shelve(tmp_path, name, 100, used)
    in_use: list[Any] = [None]
    keeper = CacheKeeper(board(), Shelf(tmp_path), lambda: in_use[0], Clock(), 150, 0)
    await keeper.look()
    assert names(tmp_path) == ["a", "b", "c"], "as long as pods are not known nothing goes"

    in_use[0] = frozenset({"a"})
    await keeper.look()
    assert names(tmp_path) == ["a"]


def test_one_that_is_asked_for_meanwhile_stays(tmp_path: Path) -> None:
    shelve(tmp_path, "a", 10, NOW - 9000)
    [seen] = Shelf(tmp_path).entries()
    Cache(tmp_path).used("a", NOW)
    assert not Shelf(tmp_path).remove("a", seen.used)

    with Cache(tmp_path).locked("a") as mine:
        assert mine
        assert not Shelf(tmp_path).remove("a", NOW)
    assert Shelf(tmp_path).remove("a", NOW)
    assert names(tmp_path) == []
    assert not Shelf(tmp_path).remove("a", NOW)


def test_a_cache_that_is_not_there_is_empty(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "none")

    assert (shelf.entries(), shelf.free(), shelf.remove("a", NOW), shelf.tidy(NOW)) == ((), 0, False, 0)


def test_what_nobody_goes_on_with_is_thrown_away(tmp_path: Path) -> None:
    for name, age in (("dead", STALE_SECONDS + 1), ("alive", 10.0)):
        (tmp_path / "parts" / name / "blobs").mkdir(parents=True)
        part = tmp_path / "parts" / name / "blobs" / "x"
        part.write_bytes(b"x")
        for path in (part, part.parent, part.parent.parent):
            os.utime(path, (NOW - age, NOW - age))
    (tmp_path / "locks").mkdir()

    assert Shelf(tmp_path).tidy(NOW) == 1
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["alive"]


async def test_a_fetched_model_is_on_the_shelf_until_it_goes_and_comes_again(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/config.json": b"{}"}
    one, source = fetcher(), parse_source("hf://o/m", "vllm")
    entry = await one.fetch(source, "folder")
    shelf = Shelf(one.cache.root)
    [found] = await asyncio.to_thread(shelf.entries)
    assert (found.entry, found.source, found.bytes) == (entry.name, "hf://o/m", 2)

    assert await asyncio.to_thread(shelf.remove, entry.name, found.used)
    assert await one.fetch(source, "folder") == entry
    assert len(await asyncio.to_thread(shelf.entries)) == 1


def test_entries_in_use_are_those_of_pods_that_have_not_ended() -> None:
    async def tell(_mismatch: object) -> None:
        return None

    def pod(uid: str, entry: str, phase: str = "Running") -> dict[str, Any]:
        notes = {"flexinfer.ai/cache-entry": entry} if entry else {}
        return {"metadata": {"uid": uid, "name": uid, "annotations": notes}, "status": {"phase": phase}}

    watch = PodWatch(board(), None, tell)
    assert watch.cache_entries() is None
    watch.take(Relisted("pods", (pod("1", "a,b"), pod("2", "c", "Succeeded"), pod("3", ""))))
    assert watch.cache_entries() == {"a", "b"}
    watch.take(KubeDelta(plural="pods", action="DELETED", object=pod("1", "a,b")))
    assert watch.cache_entries() == frozenset()
