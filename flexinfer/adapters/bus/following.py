"""Delivery to one consumer: a snapshot, then live events without a hole, again after each interruption."""

import logging
from collections import deque
from collections.abc import Callable

from flexinfer.adapters.bus import inbound
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.topics import Topic
from flexinfer.ports import BusFact, Snapshot

log = logging.getLogger(__name__)

BACKLOG = 65_536


class Delivery:
    """Orders what one sink sees.

    Live events that arrive while a snapshot is read are kept and delivered after it, so that the snapshot cannot
    undo them. Before the first snapshot nothing else is delivered; during a later one the sink goes on seeing live
    events, and sees them again after it.
    """

    def __init__(self, topics: tuple[Topic, ...], sink: Callable[[BusFact], None], backlog: int = BACKLOG) -> None:
        self.stateful = tuple(topic for topic in topics if topic.bucket is not None)
        self._sink = sink
        self._backlog = backlog
        self._held: deque[Event] | None = deque(maxlen=backlog)
        self._epoch = 0
        self.synced = False

    @property
    def epoch(self) -> int:
        """Snapshots delivered so far."""
        return self._epoch

    def hold(self) -> None:
        """A snapshot is about to be read: what is live from now on is newer than it."""
        self._held = deque(maxlen=self._backlog)

    def interrupted(self) -> None:
        """The connection is gone: whatever happens now is seen in the next snapshot."""
        self.synced = False

    def live(self, event: Event) -> None:
        """One live event."""
        if self._held is not None:
            if len(self._held) == self._held.maxlen:
                inbound.DROPPED.labels(reason="slow-reader").inc()
            self._held.append(event)
            if self._epoch == 0:
                return
        self._give(event)

    def snapshot(self, events: tuple[Event, ...], reason: str) -> None:
        """The state is read: deliver it, then what was held."""
        held, self._held = self._held or (), None
        if self._epoch:
            inbound.RESYNCS.labels(reason=reason).inc()
        self._epoch += 1
        if self.stateful:
            types = tuple(topic.data for topic in self.stateful)
            self._give(Snapshot(types=types, events=events, epoch=self._epoch))
        for event in held:
            self._give(event)
        self.synced = True

    def _give(self, fact: BusFact) -> None:
        if isinstance(fact, Event):
            inbound.count_received(fact)
        try:
            self._sink(fact)
        except Exception:  # a consumer's fault must not end the delivery of later facts to it
            log.exception("a consumer failed on %s", fact.type if isinstance(fact, Event) else "a snapshot")
