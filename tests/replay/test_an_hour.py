"""An hour of a mixed fleet on an extender's tape: replayed twice and by every Python at hand to the recorded bytes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hour import DIGEST, digest, write_tape

from flexinfer.testing.replay import load, trace

PROGRAM = Path(__file__).with_name("hour.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tape(tmp_path_factory.mktemp("hour") / "hour.jsonl")


def test_an_hour_is_the_same_twice(tape: Path) -> None:
    first, second = trace(load(tape)), trace(load(tape))

    assert first == second
    assert first.count(b'"kind":"placement"') >= 59


def test_an_hour_is_what_it_was(tape: Path) -> None:
    """Whatever Python runs this: the digest was written by one of them. ``make regold`` writes it again."""
    assert digest(tape) == DIGEST.read_text().strip()


def others() -> list[str]:
    """Every newer Python on PATH that has what flexinfer needs."""
    found = filter(None, (shutil.which(f"python3.{minor}") for minor in range(sys.version_info[1] + 1, 30)))
    check = "import flexinfer.testing.replay"
    return [
        python for python in found
        if not subprocess.run([python, "-c", check], capture_output=True, check=False, cwd=ROOT).returncode
    ]  # fmt: skip


def test_other_interpreters_agree(tape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = others()
    if not newer:
        mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
        with capsys.disabled():
            sys.stdout.write(f"\nNOT RUN: the hour's tape on a Python newer than {mine}: none on PATH can import it\n")
    for python in (sys.executable, *newer):
        env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
        told = subprocess.run([python, str(PROGRAM), str(tape)], env=env, capture_output=True, check=True, text=True)
        assert told.stdout.strip() == DIGEST.read_text().strip(), python
