"""Few files, little memory: who is over the limit is refused and told so, whoever is inside is served, nobody dies."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from flexinfer.adapters.web.proxy import room
from flexinfer.local.ports import free_port
from tests.contract.proxy.rig import DEADLINE, Wire, chat, post
from tests.faults.programs import Program, ours
from tests.integration.proxy.processes import Stage, stage_in

FILES = 64
MEMORY_KIB = 250_000


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage_in(tmp_path) as made:
        await made.route(await made.engine())
        yield made


async def proxy(stage: Stage, limit: str) -> Program:
    """A ready proxy whose shell was told ``ulimit`` first."""
    port = free_port()
    argv = (*ours("flexinfer-proxy"), "--host", "127.0.0.1", "--port", str(port), "--nats-url", stage.nats.url)
    limits = ("sh", "-c", f'ulimit {limit}; exec "$@"', "sh")
    return await (await Program("proxy", argv, stage.folder / "proxy.log", port, limits=limits).start()).ready()


async def answer(wire: Wire) -> str:
    """Status and code of an answer; ``none`` for a connection that was closed without one."""
    try:
        async with asyncio.timeout(DEADLINE):
            found = await wire._answer(head_only=False)
    except (OSError, EOFError):
        return "none"
    return str(found.status) if found.status == 200 else f"{found.status} {found.error()['code']}"


async def ask(port: int, body: bytes) -> str:
    try:
        wire = await Wire.to(port)
    except OSError:
        return "none"
    try:
        wire.send(post("/v1/chat/completions", body))
        return await answer(wire)
    finally:
        with suppress(OSError):
            await wire.close()


async def served(port: int) -> None:
    """Wait until the model answers: the proxy may be ready before it heard of the route."""
    async with asyncio.timeout(DEADLINE):
        while await ask(port, chat()) != "200":  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def test_a_proxy_with_few_files_serves_as_many_clients_as_fit_and_refuses_the_rest(stage: Stage) -> None:
    limited = await proxy(stage, f"-n {FILES}")
    try:
        await served(limited.ops)
        fit = (FILES - room.OWN_FILES) // 2
        wires = [await Wire.to(limited.ops) for _ in range(3 * FILES)]
        for wire in wires:
            wire.send(post("/v1/chat/completions", chat()))
        answers = Counter(await asyncio.gather(*(answer(wire) for wire in wires)))
        for wire in wires:
            await wire.close()

        assert set(answers) <= {"200", "503 too_many_connections", "none"}
        assert 0 < answers["200"] <= fit
        assert answers["503 too_many_connections"] > 0
        await served(limited.ops)
        assert limited.running
        assert f"room for {fit} clients" in limited.log.read_text()
    finally:
        await limited.kill()


async def test_a_proxy_with_little_memory_refuses_large_bodies_and_lives(stage: Stage) -> None:
    limited = await proxy(stage, f"-v {MEMORY_KIB}")
    try:
        await served(limited.ops)
        large = chat(extra=f', "user": "{"x" * (30 << 20)}"')
        answers = Counter(await asyncio.gather(*(ask(limited.ops, large) for _ in range(12))))

        # One that is refused while it still sends may find its connection closed.
        assert set(answers) <= {"200", "503 overloaded", "none"}, answers
        assert answers["503 overloaded"] > 0
        await served(limited.ops)
        assert limited.running
    finally:
        await limited.kill()


def test_room_is_what_the_container_may_have(tmp_path: Path) -> None:
    assert room.for_bodies(tmp_path / "none") == sys.maxsize // room.BODY_SHARE
    (tmp_path / "memory.max").write_text("max\n")
    assert room.for_bodies(tmp_path) == sys.maxsize // room.BODY_SHARE
    (tmp_path / "memory.max").write_text("536870912\n")
    assert room.for_bodies(tmp_path) == 536870912 // room.BODY_SHARE
    (tmp_path / "memory.max").unlink()
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("300000000\n")
    assert room.for_bodies(tmp_path) == 100_000_000
