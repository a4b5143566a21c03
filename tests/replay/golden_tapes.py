"""Golden traces of recorded and hand-made histories: ``python tests/replay/golden_tapes.py`` writes them again.

``recorded`` are tapes of ``flexinfer up --check --record DIR``, ``by-hand`` what ``bad_night.py`` tells. A change of a
golden trace belongs into the review of the change that caused it.
"""

from pathlib import Path

import bad_night

from flexinfer.runtime.journal import Fact, Header, encode_line
from flexinfer.testing.replay import load, trace

FOLDER = Path(__file__).parents[1] / "tapes"
BY_HAND = FOLDER / "by-hand"
STORIES = {"bad-night-manager": bad_night.manager, "bad-night-scheduler": bad_night.scheduler}


def tapes() -> list[Path]:
    """Every tape with a golden trace."""
    return sorted([*(FOLDER / "recorded").glob("*.jsonl.gz"), *(BY_HAND / f"{name}.jsonl" for name in STORIES)])


def golden(tape: Path) -> Path:
    """Where the golden trace of a tape lies."""
    return tape.with_name(tape.name.split(".")[0] + ".trace.jsonl")


def encoded(component: str, lines: list[tuple[float, Fact]]) -> bytes:
    """A hand-made tape as bytes."""
    header = Header(
        tape="flexinfer", version=1, component=component, instance="by-hand", release="0", started=bad_night.START
    )
    return bad_night.encode(header) + b"".join(encode_line(at, fact) + b"\n" for at, fact in lines)


def main() -> None:
    BY_HAND.mkdir(parents=True, exist_ok=True)
    for name, story in STORIES.items():
        (BY_HAND / f"{name}.jsonl").write_bytes(encoded(name.rpartition("-")[2], story()))
    for tape in tapes():
        golden(tape).write_bytes(trace(load(tape)))


if __name__ == "__main__":
    main()
