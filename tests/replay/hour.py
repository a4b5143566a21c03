"""An hour of a mixed fleet on an extender's tape; ``python tests/replay/hour.py`` writes the digest of its trace."""

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_tapes import FOLDER, Story, encoded

from flexinfer.testing.replay import load, trace

HOUR = 3600
NODES = {"fast-a": "4090", "fast-b": "4090", "slow": "3060", "other": "7900"}
DIGEST = FOLDER / "hour.trace.sha256"


def an_hour() -> Story:
    """Figures of four nodes, one of them silent for five minutes, and a pod a minute."""
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


def write_tape(path: Path) -> Path:
    """The tape as a file."""
    path.write_bytes(encoded(an_hour()))
    return path


def digest(tape: Path) -> str:
    """SHA-256 of the trace."""
    return hashlib.sha256(trace(load(tape))).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(digest(Path(sys.argv[1])) + "\n")
    else:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            DIGEST.write_text(digest(write_tape(Path(folder) / "hour.jsonl")) + "\n")
