"""What the bus says of the node that serves during a run: which it is, its hardware, its power."""

from dataclasses import replace

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import ModelEndpoint, NodeHardware, NodeTelemetry
from flexinfer.core.benchmark.energy import PowerSample, demanded_count
from flexinfer.core.benchmark.findings import Unusable
from flexinfer.core.benchmark.summary import Subject
from flexinfer.core.hardware.device_class import classes_of

MAX_SAMPLES = 4096


class Witness:
    """Fold events of the bus, then ask. ``name`` is the routable name under test, ``node`` where we run ourselves.

    The node that serves is the one of the name's endpoint; only while nobody told of it, ours is taken for it.
    """

    def __init__(self, namespace: str, name: str, node: str | None) -> None:
        self.name = (namespace, name)
        self._own = node
        self._serving: str | None = None
        self._hardware: dict[str, NodeHardware] = {}
        self.samples: list[PowerSample] = []

    @property
    def node(self) -> str | None:
        """The node that serves, as far as it is known."""
        return self._serving or self._own

    @property
    def hardware(self) -> NodeHardware | None:
        """Its hardware, if an agent told of it."""
        return self._hardware.get(self.node) if self.node else None

    def fold(self, event: Event) -> None:
        """One event; those of other nodes and names are kept only as far as they may matter later."""
        match event.data:
            case NodeHardware() as data:
                self._hardware[data.node] = data
            case ModelEndpoint() as data if (data.namespace, data.model) == self.name and not data.gone:
                nodes = {endpoint.node for endpoint in data.endpoints}
                self._serving = nodes.pop() if len(nodes) == 1 else None
            case NodeTelemetry() as data if data.node == self.node and len(self.samples) < MAX_SAMPLES:
                self.samples.append(PowerSample(event.at, data))
            case _:
                return

    def located(self, subject: Subject) -> Subject:
        """The subject with the node that serves, marked virtual if that is declared and not detected."""
        return replace(subject, node=self.node, virtual=bool(self.hardware and self.hardware.virtual))

    def check(self, device_class: str) -> None:
        """Raise Unusable if the node, as its agent knows it, offers another class than the one measured for.

        A node nobody told of is believed: the bus may be away, or the node without an agent.
        """
        if self.hardware is None:
            return
        offered = classes_of(self.hardware, demanded_count(device_class))
        if device_class not in offered:
            raise Unusable(
                "WrongDeviceClass",
                f"node {self.node} offers {', '.join(offered) or 'no such devices'}, not {device_class}",
            )
