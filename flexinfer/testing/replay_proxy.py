"""Replay a proxy's tape: the same facts give the same routes."""

from collections.abc import Iterator

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import ModelEndpoint
from flexinfer.core.routing.directory import Directory
from flexinfer.ports import Snapshot
from flexinfer.runtime.journal import Fact


class ProxyReplay:
    """One routing table made of its tape. Routes in doubt end with the first fact after their time, not within it."""

    def __init__(self, name: str) -> None:
        self.directory = Directory(name=name)

    def feed(self, at: float, fact: Fact) -> Iterator[tuple[str, ModelEndpoint | None]]:
        """One line of a tape; the routes that changed, None for those that are gone."""
        keys = self.directory.expire(at)
        match fact:
            case Snapshot(events=events):
                keys += self.directory.replace(events, at)
            case Event():
                keys += self.directory.fold(fact, at)
            case _:
                pass
        for key in keys:
            yield key, self.directory.table.routes.get(key)
