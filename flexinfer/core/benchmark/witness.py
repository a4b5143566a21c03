"""What the bus says of the node during a run: its hardware, so that the class is true, and its power."""

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import NodeHardware, NodeTelemetry
from flexinfer.core.benchmark.energy import PowerSample, demanded_count
from flexinfer.core.benchmark.findings import Unusable
from flexinfer.core.hardware.device_class import classes_of

MAX_SAMPLES = 4096


class Witness:
    """Fold the node's events; read the attributes afterwards."""

    def __init__(self, node: str | None) -> None:
        self._node = node
        self.hardware: NodeHardware | None = None
        self.samples: list[PowerSample] = []

    def fold(self, event: Event) -> None:
        """One event of any node."""
        match event.data:
            case NodeHardware(node=self._node) as data:
                self.hardware = data
            case NodeTelemetry(node=self._node) as data if len(self.samples) < MAX_SAMPLES:
                self.samples.append(PowerSample(event.at, data))
            case _:
                return

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
                f"node {self._node} offers {', '.join(offered) or 'no such devices'}, not {device_class}",
            )
