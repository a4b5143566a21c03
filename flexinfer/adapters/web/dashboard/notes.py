"""What the banner says: silent nodes, decisions taken in degraded mode, a bus that is away."""

from dataclasses import dataclass, field, replace

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import NodeHardware, NodeStatus, NodeTelemetry, PlacementDecided

STALE_INTERVALS = 3  # as the extender ages telemetry
DEGRADED_SECONDS = 60.0
NAMED = 5
FORGOTTEN_SECONDS = 86_400.0


@dataclass(slots=True)
class Health:
    """When each node is due to speak again, and what was decided in degraded mode. Times are Unix seconds."""

    due: dict[str, float] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)  # told that they are going, so their silence is no news
    degraded_at: float = 0.0

    def note(self, event: Event, heard: float) -> None:
        """Fold one event."""
        match event.data:
            case NodeHardware(node=node):
                self.due.setdefault(node, heard + 30.0)
            case NodeTelemetry(node=node, interval_seconds=interval):
                self.due[node] = heard + STALE_INTERVALS * interval + 1.0
            case NodeStatus(node=node, state=state):
                (self.away.discard if state == "online" else self.away.add)(node)
            case PlacementDecided(degraded=True):
                self.degraded_at = heard
            case PlacementDecided():
                self.degraded_at = 0.0
            case _:
                return

    def forget(self, now: float) -> None:
        """Leave out nodes that said nothing for a day."""
        for node in [node for node, due in self.due.items() if now - due > FORGOTTEN_SECONDS]:
            del self.due[node]
            self.away.discard(node)

    def silent(self, now: float) -> list[str]:
        """Nodes that should have spoken by now, in order of name."""
        return sorted(node for node, due in self.due.items() if now > due and node not in self.away)

    def sentences(self, now: float) -> list[str]:
        """For the banner; empty when all is well."""
        found = []
        silent = self.silent(now)
        if silent:
            names = ", ".join(silent[:NAMED]) + (", …" if len(silent) > NAMED else "")
            found.append(f"{len(silent)} of {len(self.due)} nodes are silent, their figures are stale: {names}.")
        if self.degraded_at and now - self.degraded_at < DEGRADED_SECONDS:
            found.append("Placement is degraded: the scheduler decides from labels, without live figures.")
        return found

    def copy(self) -> "Health":
        """The same, independent of this one."""
        return replace(self, due=dict(self.due), away=set(self.away))
