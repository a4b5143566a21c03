"""The flight recorder: what is said on the bus, as tapes that rotate, pack themselves and each stand alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import EventData
from flexinfer.contracts.topics import TOPICS
from flexinfer.ports import BusFact, Snapshot
from flexinfer.runtime.journal import Header, Journal
from flexinfer.runtime.parts import Limits, Standing

COMPONENT = "recorder"
LOOK_EVERY = 200  # facts between two looks at the size of the file

_STATEFUL: tuple[type[EventData], ...] = tuple(topic.data for topic in TOPICS.values() if topic.bucket)


class Recorder:
    """Writes facts as they come. A part begins with the whole state, so that it can be read without the one before.

    ``sift`` gives what to write of an event, None to leave it out. ``finished`` are parts to pack and prune.
    """

    def __init__(self, folder: Path, header: Header, limits: Limits, sift: Callable[[Event], Event | None]) -> None:
        """Opens the first part. Raises OSError."""
        self._folder = folder
        self._header = header
        self._limits = limits
        self._sift = sift
        self._standing = Standing()
        self._epoch = 0
        self._began = header.started
        self._facts = 0
        self.events = 0
        self.parts = 1
        self.finished: list[Path] = []
        self._journal = Journal.open(folder, header)

    def take(self, at: float, fact: BusFact) -> None:
        """Write one fact, ``at`` Unix seconds; begins a new part when the present one is full."""
        if isinstance(fact, Snapshot):
            self._replace(at, fact)
        else:
            self._event(at, fact)
        self._facts += 1
        if self._full(at):
            self._turn(at)

    def _replace(self, at: float, snapshot: Snapshot) -> None:
        events = tuple(found for event in snapshot.events if (found := self._sift(event)) is not None)
        self._keep(at, replace(snapshot, events=events))

    def _event(self, at: float, event: Event) -> None:
        found = self._sift(event)
        if found is None:
            return
        self._keep(at, found)
        self.events += 1

    def _keep(self, at: float, fact: BusFact) -> None:
        self._standing.take(fact)
        self._journal.write(at, fact)

    def _full(self, at: float) -> bool:
        if self._limits.age and at - self._began >= self._limits.age:
            return True
        if not self._limits.size or self._facts % LOOK_EVERY:
            return False
        self._journal.flush()
        return self._journal.path.stat().st_size >= self._limits.size

    def _turn(self, at: float) -> None:
        old = self._journal
        old.close()
        self.finished.append(old.path)
        self._began = max(at, self._began + 0.001)  # parts are named by the millisecond they began
        self._journal = Journal.open(self._folder, structs.replace(self._header, started=self._began))
        self._epoch += 1
        self._journal.write(at, Snapshot(_STATEFUL, self._standing.events, self._epoch))
        self.parts += 1

    def close(self) -> None:
        """End the last part."""
        self._journal.close()
        self.finished.append(self._journal.path)
