"""An hour of a mixed fleet on an extender's tape: replayed twice and by every Python at hand, the same bytes."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_tapes import Story, encoded

from flexinfer.testing.replay import load, trace

HOUR = 3600
NODES = {"fast-a": "4090", "fast-b": "4090", "slow": "3060", "other": "7900"}


def an_hour() -> Story:
    story = Story()
    story.begin(**NODES)
    for second in range(1, HOUR):
        story.at(float(second))
        for number, (node, kind) in enumerate(NODES.items()):
            if second % 4 == number and not (node == "slow" and 1200 < second < 1500):
                busy = float((second * 7 + number * 13) % 100)
                story.tell(story.live(node, busy, int(20_000 * (1 - busy / 120)) if kind != "3060" else 11_000))
        if second % 60 == 30:
            story.ask("filter", f"pod-{second}", list(NODES), vram="9000")
            story.ask("prioritize", f"pod-{second}", ["fast-a", "fast-b", "slow"], vram="9000")
    return story


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hour") / "hour.jsonl"
    path.write_bytes(encoded(an_hour()))
    return path


def test_an_hour_is_the_same_twice(tape: Path) -> None:
    first, second = trace(load(tape)), trace(load(tape))

    assert first == second
    assert first.count(b'"kind":"placement"') >= 59


def test_other_interpreters_agree(tape: Path) -> None:
    expected = hashlib.sha256(trace(load(tape))).hexdigest()
    code = (
        "import hashlib, sys; from pathlib import Path; from flexinfer.testing.replay import load, trace; "
        "print(hashlib.sha256(trace(load(Path(sys.argv[1])))).hexdigest())"
    )
    found = {sys.executable, *filter(None, (shutil.which(f"python3.{minor}") for minor in range(12, 20)))}
    tried = 0
    for python in sorted(found):
        able = subprocess.run([python, "-c", "import flexinfer, msgspec, pydantic"], capture_output=True, check=False)
        if able.returncode:
            continue  # an interpreter without our dependencies
        env = {**os.environ, "PYTHONHASHSEED": "77"}
        told = subprocess.run([python, "-c", code, str(tape)], env=env, capture_output=True, check=True, text=True)
        assert told.stdout.strip() == expected, python
        tried += 1
    assert tried
