"""Time travel: the board of any moment of a tape, folded from the nearest copy before it."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.contracts.events import BenchCompleted, BenchFailed, ModelPhase, NodeStatus, PlacementDecided
from flexinfer.ports import BusFact, Snapshot

COPIES = 64
LEAST_BETWEEN = 500
MARKS = 400
BARS = 120

Moments = Sequence[tuple[float, BusFact]]


class Timeline:
    """Facts of one or more tapes in order of time. Facts of several tapes may repeat each other."""

    def __init__(self, title: str, moments: Moments, notes: Sequence[str] = ()) -> None:
        self._title = title
        self._notes = list(notes)
        self._moments = list(_once(sorted(moments, key=lambda moment: moment[0])))
        self._times = [at for at, _ in self._moments]
        self._copies: list[tuple[int, Board]] = [(0, Board())]
        every = max(LEAST_BETWEEN, len(self._moments) // COPIES)
        board = Board()
        for position, (at, fact) in enumerate(self._moments, start=1):
            board.take(fact, at)
            if position % every == 0:
                self._copies.append((position, board.copy()))

    @property
    def start(self) -> float:
        """Unix seconds of the first fact; 0 on an empty tape."""
        return self._times[0] if self._times else 0.0

    @property
    def end(self) -> float:
        """Unix seconds of the last fact."""
        return self._times[-1] if self._times else 0.0

    def board(self, at: float) -> Board:
        """All facts up to and including ``at``."""
        stop = bisect_right(self._times, at)
        begin, nearest = next(found for found in reversed(self._copies) if found[0] <= stop)
        board = nearest.copy()
        for when, fact in islice(self._moments, begin, stop):
            board.take(fact, when)
        return board

    def snapshot(self, at: float) -> bytes:
        """The page's document as of ``at``, kept within the tape."""
        at = min(max(at, self.start), self.end)
        board = self.board(at)
        board.forget(at)
        return board.snapshot(at, board.health.sentences(at))

    def about(self) -> bytes:
        """Title, range, what could not be read, events per bar, and the moments worth a mark."""
        return msgspec.json.encode(
            {
                "title": self._title, "start": self.start, "end": self.end, "facts": len(self._moments),
                "notes": self._notes, "bars": self._bars(), "marks": self._marks(),
            }
        )  # fmt: skip

    def _bars(self) -> list[int]:
        bars = [0] * BARS
        width = (self.end - self.start) / BARS or 1.0
        for at in self._times:
            bars[min(int((at - self.start) / width), BARS - 1)] += 1
        return bars

    def _marks(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for at, fact in self._moments:
            text = _mark(fact)
            if text:
                found.append({"at": at, "text": text})
        if len(found) <= MARKS:
            return found
        return found[:: len(found) // MARKS + 1]


def _once(moments: Moments) -> Iterator[tuple[float, BusFact]]:
    told: set[str] = set()
    for at, fact in moments:
        if isinstance(fact, Snapshot):
            yield at, fact
        elif fact.id not in told:
            told.add(fact.id)
            yield at, fact


def _mark(fact: BusFact) -> str:
    if isinstance(fact, Snapshot):
        return ""
    match fact.data:
        case ModelPhase(gone=False) as data:
            return f"{data.namespace}/{data.model} {data.phase}"
        case PlacementDecided(candidates=(first, *_)) as data:
            return f"{data.namespace}/{data.pod} on {first.node}"
        case PlacementDecided() as data:
            return f"{data.namespace}/{data.pod} {data.outcome}"
        case BenchCompleted() as data:
            return f"measured {data.device_class}: {data.tokens_per_second:.1f} tokens/s"
        case BenchFailed() as data:
            return f"measuring failed: {data.reason}"
        case NodeStatus() as data:
            return f"{data.node} {data.state}"
        case _:
            return ""
