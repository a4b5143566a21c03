"""A killed parent leaves no process, no process of a process, and no directory."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from flexinfer.local.processes import Reaper, spawn, stop

# Starts a child that ignores SIGTERM and has a child of its own, all in one group.
CHILD = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(inner.pid, flush=True)
signal.pause()
"""

PARENT = """
import asyncio, os, sys, tempfile
from pathlib import Path
from flexinfer.local.processes import Reaper, spawn

async def main():
    reaper = await Reaper.start()
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1]))
    (folder / "file").write_text("x")
    reaper.track_dir(folder)
    read, write = os.pipe()
    child = await spawn([sys.executable, "-c", sys.argv[2]], env=os.environ, cwd=Path("/"), output=write, reaper=reaper)
    inner = os.fdopen(read).readline().strip()
    print(child.pid, inner, reaper._process.pid, folder, flush=True)
    await asyncio.sleep(60)

if len(sys.argv) > 3:
    import uvloop
    uvloop.run(main())
asyncio.run(main())
"""


async def start_parent(tmp_path: Path, *extra: str) -> tuple[asyncio.subprocess.Process, list[int], Path]:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), CHILD, *extra, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout
    line = (await asyncio.wait_for(parent.stdout.readline(), 20)).decode().split()
    assert len(line) == 4, line
    return parent, [int(pid) for pid in line[:3]], Path(line[3])


@pytest.mark.parametrize("loop", [(), ("uvloop",)])
async def test_kill_dash_nine_of_the_parent(tmp_path, until, alive, loop):
    parent, pids, folder = await start_parent(tmp_path, *loop)
    assert all(alive(pid) for pid in pids)
    assert folder.exists()

    parent.kill()
    await parent.wait()

    await until(lambda: not any(alive(pid) for pid in pids), "the end of all processes")
    await until(lambda: not folder.exists(), "the end of the directory")


async def test_the_kernel_kills_the_child_when_the_reaper_was_killed_too(tmp_path, until, alive):
    parent, (child, inner, reaper), _folder = await start_parent(tmp_path)
    os.kill(reaper, signal.SIGKILL)
    parent.kill()
    await parent.wait()

    await until(lambda: not alive(child), "the end of the child")
    os.kill(inner, signal.SIGKILL)  # nobody is left who could


async def test_closing_the_reaper_cleans_what_is_still_tracked(tmp_path, alive):
    reaper = await Reaper.start()
    folder, kept = tmp_path / "gone", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    reaper.track_dir(folder)
    reaper.track_dir(kept)
    reaper.forget_dir(kept)
    child = await spawn(
        [sys.executable, "-c", "import signal; signal.pause()"], env=os.environ, cwd=tmp_path, reaper=reaper
    )

    await reaper.close()

    assert await child.wait() == -signal.SIGTERM
    assert not folder.exists()
    assert kept.exists()


async def test_a_forgotten_process_is_left_alone(tmp_path):
    reaper = await Reaper.start()
    child = await spawn(
        [sys.executable, "-c", "import signal; signal.pause()"], env=os.environ, cwd=tmp_path, reaper=reaper
    )
    reaper.forget_pid(child.pid)

    await reaper.close()

    assert child.returncode is None
    assert await stop(child, grace=5) == -signal.SIGTERM


async def test_stop_escalates_to_the_whole_group(tmp_path, until, alive):
    read, write = os.pipe()
    child = await spawn([sys.executable, "-c", CHILD], env=os.environ, cwd=tmp_path, output=write)
    os.close(write)
    with os.fdopen(read) as lines:
        inner = int(lines.readline())

    assert await stop(child, grace=0.2) == -signal.SIGKILL
    await until(lambda: not alive(inner), "the end of the inner process")


async def test_a_program_that_does_not_exist_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        await spawn(["/no/such/program"], env={}, cwd=tmp_path)


async def test_a_lost_reaper_is_reported_and_harmless(tmp_path, caplog):
    reaper = await Reaper.start()
    assert reaper._process
    reaper._process.kill()
    await reaper._process.wait()

    reaper.track_dir(tmp_path / "a")
    reaper.track_dir(tmp_path / "b")
    await reaper.close()

    assert "reaper process is gone" in caplog.text
