"""Real child processes: time limits, process groups, environment, output of any size and kind."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from flexinfer.adapters.gpu import tools as adapter
from flexinfer.adapters.gpu.files import RootedFiles
from flexinfer.adapters.gpu.tools import SubprocessTools, clean_environment
from flexinfer.adapters.gpu.worker import Worker, WorkerStuck

DEADLINE = 60.0


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def tools(folder: Path, **environ: str) -> SubprocessTools:
    return SubprocessTools({"PATH": f"{folder}:/usr/bin:/bin", **environ})


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


async def test_output_and_exit_code_are_the_tools(tmp_path: Path) -> None:
    script(tmp_path, "tool", "printf '\\377\\376 out'; echo err >&2; exit 14")

    found = await tools(tmp_path).run(["tool"])

    assert (found.stdout, found.stderr, found.code, found.found) == (b"\xff\xfe out", b"err\n", 14, True)


async def test_a_missing_tool_is_not_found(tmp_path: Path) -> None:
    assert not (await tools(tmp_path).run(["no-such-tool-here"])).found


async def test_a_broken_tool_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/no/such/interpreter\n")
    (tmp_path / "tool").chmod(0o755)

    found = await tools(tmp_path).run(["tool"])

    assert not found.found or found.code in {126, 127}


async def test_a_hanging_tool_is_killed_with_its_children(tmp_path: Path) -> None:
    script(tmp_path, "tool", f"sleep 300 & echo $! > {tmp_path}/child; echo partial; wait")

    found = await tools(tmp_path).run(["tool"], timeout=3)

    assert found.timed_out
    assert found.stdout == b"partial\n"
    child = int((tmp_path / "child").read_text())
    async with asyncio.timeout(DEADLINE):
        while alive(child):  # noqa: ASYNC110 - a process of somebody else has no event
            await asyncio.sleep(0.01)


async def test_a_tool_that_cannot_be_ended_is_not_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "tool", f"echo called >> {tmp_path}/calls; exec sleep 300")
    stubborn = tools(tmp_path)
    pids: list[int] = []
    monkeypatch.setattr(adapter, "REAP_SECONDS", 0.05)
    monkeypatch.setattr(adapter.os, "killpg", lambda pid, _signal: pids.append(pid))

    first = await stubborn.run(["tool"], timeout=3)
    second = await stubborn.run(["tool"], timeout=0.3)
    other = await stubborn.run(["true"])

    assert first.timed_out
    assert second.timed_out
    assert second.stderr == b"the previous call has not ended"
    assert (tmp_path / "calls").read_text() == "called\n"
    assert other.code == 0
    monkeypatch.undo()
    os.killpg(pids[0], signal.SIGKILL)
    async with asyncio.timeout(DEADLINE):
        while (await stubborn.run(["tool"], timeout=0.1)).stderr:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.01)


async def test_a_flood_of_output_is_cut_and_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "OUTPUT_BYTES", 1000)
    script(tmp_path, "tool", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")

    found = await tools(tmp_path).run(["tool"])

    assert (len(found.stdout), len(found.stderr), found.code) == (1000, 1000, 0)


async def test_variables_that_change_answers_are_dropped(tmp_path: Path) -> None:
    script(tmp_path, "tool", "env")
    dirty = {
        "HSA_OVERRIDE_GFX_VERSION": "10.3.0", "ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0",
        "CUDA_VISIBLE_DEVICES": "", "GPU_DEVICE_ORDINAL": "1", "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8",
        "PYTHONPATH": "/stubs", "NATS_URL": "nats://secret@bus", "ROCM_PATH": "/opt/rocm",
    }  # fmt: skip

    found = await tools(tmp_path, **dirty).run(["tool"])

    seen = dict(line.split("=", 1) for line in found.stdout.decode().splitlines() if "=" in line)
    assert (seen["LC_ALL"], seen["LANG"], seen["ROCM_PATH"]) == ("C", "C", "/opt/rocm")
    assert not seen.keys() & (dirty.keys() - {"LC_ALL", "LANG", "ROCM_PATH"})
    assert clean_environment({}) == {"LC_ALL": "C", "LANG": "C"}


async def test_calls_leave_no_file_descriptors_behind(tmp_path: Path) -> None:
    script(tmp_path, "tool", "echo x")
    script(tmp_path, "slow", "sleep 300")
    running = tools(tmp_path)
    await running.run(["tool"])
    before = open_files()

    for _ in range(20):
        await running.run(["tool"])
        await running.run(["slow"], timeout=0.02)

    assert open_files() <= before + 2


def test_files_are_looked_up_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "a").write_bytes(b"12345")
    (tmp_path / "sys" / "link").symlink_to("../drivers/nvidia")
    files = RootedFiles(tmp_path)

    assert files.read("/sys/a") == b"12345"
    assert files.read("/sys/a", 2) == b"12"
    assert files.read("/sys/none") is None
    assert files.read("/sys") is None
    assert files.read("/sys/a\0b") is None
    assert files.listdir("/sys") == ("a", "link")
    assert files.listdir("/sys/a") == ()
    assert files.readlink("/sys/link") == "../drivers/nvidia"
    assert files.readlink("/sys/a") is None


async def test_a_worker_hands_on_results_and_exceptions() -> None:
    worker = Worker("test")

    assert await worker.call(lambda: 7, 1.0) == 7
    with pytest.raises(ValueError, match="boom"):
        await worker.call(lambda: int("boom"), 1.0)


async def test_a_stuck_worker_takes_no_more_calls_until_it_is_free() -> None:
    import threading  # noqa: PLC0415 - only this test holds a thread

    worker, gate = Worker("test"), threading.Event()
    with pytest.raises(WorkerStuck, match="no answer within"):
        await worker.call(gate.wait, 0.05)
    with pytest.raises(WorkerStuck, match="has not returned"):
        await worker.call(lambda: 1, 0.05)

    gate.set()
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                assert await worker.call(lambda: 2, 1.0) == 2
            except WorkerStuck:
                await asyncio.sleep(0.01)
            else:
                break
