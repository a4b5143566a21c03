"""Several pods of one node, and processes that die at any point."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hubs import Hub

from flexinfer.core.lifecycle.fetching.entries import entry_of
from flexinfer.core.lifecycle.sources import parse_source

DATA = bytes(random.Random(7).randbytes(600_000))
SOURCE = parse_source("hf://o/m", "vllm")


class Nursery:
    """A process that has everything imported and forks a child per fetch, which takes milliseconds."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "nursery.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    async def fetch(self, root: Path, url: str, die_at: int = 0) -> int:
        """The child's exit status; -9 if it died before the step ``die_at``."""
        return int(await asyncio.to_thread(self._ask, {"root": str(root), "url": url, "die_at": die_at}))

    def _ask(self, order: dict[str, Any]) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


def state(cache: Path) -> dict[str, bytes] | None:
    """Content of the entry, None while there is none; what an engine would load."""
    folder = cache / "entries" / entry_of(SOURCE, "folder").name
    if not folder.exists():
        return None
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".flexinfer.json"}


async def test_killed_at_a_hundred_points_it_is_whole_or_not_there(hub: Hub, nursery: Nursery, tmp_path: Path) -> None:
    files = {"a.safetensors": DATA, "b.safetensors": DATA[::-1], "config.json": b"{}"}
    hub.files = {f"o/m/{name}": data for name, data in files.items()}
    steps = random.Random(11)
    cache, kills, wholes = tmp_path / "0", 0, 0
    while kills < 100:
        status = await nursery.fetch(cache, hub.url, die_at=steps.randint(1, 12))
        assert status in {0, -9}
        kills += status == -9
        seen = state(cache)
        assert seen in (None, files)
        assert status or seen == files
        if seen is not None:
            wholes += 1
            cache = tmp_path / str(wholes)

    assert wholes >= 5, "kills end in whole models, again and again"
    announced = sum(len(data) for data in files.values()) * (wholes + 1)
    assert sum(hub.sent.values()) < announced * 4, "it goes on and does not begin anew each time"


async def test_two_pods_of_one_node_fetch_once(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/a.safetensors": DATA}
    pods = [fetcher(pause=asyncio.sleep) for _ in range(4)]
    entries = await asyncio.gather(*(pod.fetch(SOURCE, "folder") for pod in pods))

    assert len(set(entries)) == 1
    assert hub.sent == {"/cdn/o/m/a.safetensors": len(DATA)}


async def test_the_next_pod_goes_on_where_a_dead_one_stopped(hub: Hub, nursery: Nursery, tmp_path: Path) -> None:
    hub.files = {"o/m/a.safetensors": DATA}
    assert await nursery.fetch(tmp_path / "c", hub.url, die_at=6) == -9
    first = sum(hub.sent.values())
    assert await nursery.fetch(tmp_path / "c", hub.url) == 0

    assert state(tmp_path / "c") == {"a.safetensors": DATA}
    assert sum(hub.sent.values()) - first < len(DATA)
