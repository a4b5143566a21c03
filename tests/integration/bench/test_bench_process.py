"""The real executable: exit codes, signals, and what a kill leaves behind."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from flexinfer.contracts.events import BenchCompleted, BenchFailed
from flexinfer.contracts.termination import decode_outcome
from flexinfer.testing.fake_engine import FakeEngine, Fault, Speeds

PROGRAM = str(Path(sys.executable).parent / "flexinfer-bench")


async def start(engine: FakeEngine, log: Path, **environ: str) -> asyncio.subprocess.Process:
    values = {
        "FLEXINFER_URL": engine.url, "FLEXINFER_MODEL": "fake-model", "FLEXINFER_KEY": "fake-0123456789ab",
        "FLEXINFER_MIN_DURATION": "0", "FLEXINFER_BATCH_SIZE": "8", "FLEXINFER_CONCURRENCY": "1",
        "FLEXINFER_READY_TIMEOUT": "2s", "FLEXINFER_TERMINATION_LOG": str(log),
    }  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FLEXINFER_")}
    return await asyncio.create_subprocess_exec(
        PROGRAM, env={**clean, **values, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


async def finish(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    return process.returncode, err.decode()


async def test_a_result_in_the_termination_log_and_exit_0(engine: FakeEngine, tmp_path: Path):
    code, err = await finish(await start(engine, tmp_path / "log"))
    assert code == 0, err
    assert isinstance(decode_outcome((tmp_path / "log").read_bytes()), BenchCompleted)


async def test_a_bad_setting_is_one_sentence_and_exit_2(engine: FakeEngine, tmp_path: Path):
    code, err = await finish(await start(engine, tmp_path / "log", FLEXINFER_ITERATIONS="-3"))
    assert code == 2
    assert "iterations must be at least 1" in err
    assert "Traceback" not in err
    assert isinstance(decode_outcome((tmp_path / "log").read_bytes()), BenchFailed)


async def test_an_engine_that_dies_is_exit_4_without_a_stack(engine: FakeEngine, tmp_path: Path):
    engine.then(*[Fault()] * 4)
    engine.fault = Fault(reset_after=2)
    code, err = await finish(await start(engine, tmp_path / "log"))
    assert code == 4
    assert "Traceback" not in err


async def test_sigterm_ends_it_at_once_without_a_result(engine: FakeEngine, tmp_path: Path):
    engine.then(*[Fault()] * 5)
    engine.fault = Fault(stall_after=1)
    process = await start(engine, tmp_path / "log")
    async with asyncio.timeout(60):
        while len(engine.seen) < 6:  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    code, err = await finish(process)
    assert code == 143
    assert "no result" in err
    assert not (tmp_path / "log").exists()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0])
async def test_kill_9_leaves_no_result_or_a_whole_one(engine: FakeEngine, tmp_path: Path, share: float):
    """Killed after each share of the requests a whole run needs; the last one races with the write itself."""
    engine.speeds = Speeds(tokens_per_second=400)
    log = tmp_path / "log"
    process = await start(engine, log)
    wanted = round(share * 9)  # one probe, one fitting, two warm-ups, five iterations
    async with asyncio.timeout(60):
        while engine.totals.finished < wanted:  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.0005)
    with suppress(ProcessLookupError):
        process.kill()
    await finish(process)
    raw = log.read_bytes() if log.exists() else b""
    if raw:
        assert isinstance(decode_outcome(raw), BenchCompleted)
    else:
        assert process.returncode == -signal.SIGKILL
