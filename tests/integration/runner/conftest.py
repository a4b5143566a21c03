"""Waiting on real processes: by looking until it is so, with a deadline, never by sleeping and hoping."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.kubernetes import EVENTS, PODS, Object
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.processes import Reaper
from flexinfer.local.runner import LocalImage, Pacing, ProcessRunner
from flexinfer.ports import Invalid

NS = "default"
NODE = "here"
PYTHON = "python:3"
PACING = Pacing(backoff=0.1, backoff_cap=0.4, retry=0.1, eager=0.05)


def process_exists(pid: int) -> bool:
    """False for a process that is gone or only waits for its parent to read the exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc").exists()
    return state != b"Z"


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    async def wait(condition: Callable[[], object], what: str = "the condition", seconds: float = 10.0) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not condition():  # noqa: ASYNC110 - a process elsewhere sets no event of ours
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"{what} did not come true in {seconds} s")

    return wait


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    return hold


@pytest.fixture
def alive() -> Callable[[int], bool]:
    return process_exists


async def hold(condition: Callable[[], Awaitable[object]], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for is on the other side of a socket
            await asyncio.sleep(0.02)


@dataclass
class Machine:
    """A runner on an embedded API, and short words for what tests do with pods."""

    server: EmbeddedApi
    api: KubeClient
    reaper: Reaper
    runner: ProcessRunner
    work: Path

    def new_runner(self, **options: Any) -> ProcessRunner:
        images = {PYTHON: LocalImage((sys.executable, "-c"), env={"FROM_IMAGE": "yes", "PYTHONUNBUFFERED": "1"})}
        runner = ProcessRunner(self.api, NODE, images, self.work, reaper=self.reaper, pacing=PACING, **options)
        self.server.logs = runner.log_source
        return runner

    async def pod(self, name: str, code: str = "", *, container: Object | None = None, **spec: Any) -> Object:
        """Create a pod that runs a Python program on this node."""
        main = {"name": "main", "image": PYTHON, "args": [code], **(container or {})}
        body = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NS, "labels": {"app": name}},
            "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": [main], **spec},
        }  # fmt: skip
        return await self.api.create(PODS, body, NS)

    async def get(self, name: str) -> Object:
        return await self.api.get(PODS, name, NS)

    async def status(self, name: str, condition: Callable[[Object], object], seconds: float = 15.0) -> Object:
        """The pod's status once the condition holds."""
        status: Object = {}

        async def holds() -> object:
            nonlocal status
            status = (await self.get(name)).get("status") or {}
            return condition(status)

        try:
            await hold(holds, seconds)
        except TimeoutError:
            pytest.fail(f"pod {name} stayed at {status}")
        return status

    async def phase(self, name: str, phase: str) -> Object:
        return await self.status(name, lambda status: status.get("phase") == phase)

    async def ready(self, name: str) -> Object:
        return await self.status(name, is_ready)

    async def gone(self, name: str) -> None:
        async def absent() -> bool:
            return all(pod["metadata"]["name"] != name for pod in (await self.api.list(PODS, NS)).items)

        await hold(absent)

    async def event(self, name: str, reason: str) -> None:
        """Wait for an Event about a pod."""

        async def told() -> bool:
            return reason in await self.reasons(name)

        await hold(told)

    async def line(self, name: str) -> str:
        """The first complete line a pod prints."""
        text = ""

        async def complete() -> bool:
            nonlocal text
            with suppress(Invalid):  # there is no log before the process starts
                text = await self.api.logs(NS, name)
            return "\n" in text

        await hold(complete)
        return text.splitlines()[0]

    async def log(self, name: str, container: str | None = None) -> str:
        return await self.api.logs(NS, name, container)

    async def reasons(self, name: str) -> set[str]:
        """Reasons of the Events about a pod."""
        events = (await self.api.list(EVENTS, NS)).items
        return {event["reason"] for event in events if event["regarding"]["name"] == name}


def is_ready(status: Object) -> bool:
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in status.get("conditions") or ())


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    server = await EmbeddedApi().start()
    api = await KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))
    reaper = await Reaper.start()
    found = Machine(server, api, reaper, None, tmp_path / "work")  # type: ignore[arg-type] - made on the next line
    found.runner = found.new_runner()
    await found.runner.start()
    yield found
    await found.runner.stop(grace=1.0)
    await reaper.close()
    await api.aclose()
    await server.stop()
