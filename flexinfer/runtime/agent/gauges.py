"""Prometheus figures of the devices; a series goes away with its device or with what it measured."""

from collections.abc import Collection, Iterable

from flexinfer.core.hardware.findings import Unit
from flexinfer.telemetry import metrics

_LABELS = ("gpu", "node")
_GAUGES = (
    metrics.gauge("flexinfer_gpu_temperature_celsius", "Temperature of a device.", _LABELS),
    metrics.gauge("flexinfer_gpu_utilization_ratio", "Share of time a device was busy.", _LABELS),
    metrics.gauge("flexinfer_gpu_memory_used_bytes", "Memory in use.", _LABELS),
    metrics.gauge("flexinfer_gpu_memory_free_bytes", "Memory a workload could get.", _LABELS),
    metrics.gauge("flexinfer_gpu_power_watts", "Power drawn.", _LABELS),
    metrics.gauge("flexinfer_gpu_sm_clock_hertz", "Clock of the compute units.", _LABELS),
    metrics.gauge("flexinfer_gpu_throttled", "1 while something holds the clocks down.", _LABELS),
    metrics.gauge("flexinfer_gpu_ecc_uncorrected_errors", "Uncorrected ECC errors since the driver's start.", _LABELS),
    metrics.gauge("flexinfer_gpu_usable", "1 if a workload can be given the device.", _LABELS),
)
_DEVICES = metrics.gauge("flexinfer_node_gpus", "Units a workload can get.", ("node",))


class Gauges:
    """The series of one node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._shown: set[tuple[int, str]] = set()

    def show(self, units: Iterable[Unit], counted: Collection[str]) -> None:
        """Exactly these units and what is known of them; integrated graphics only where they count."""
        listed = [unit for unit in units if unit.role != "integrated" or unit.uuid in counted]
        mixed = len({unit.vendor for unit in listed}) > 1
        now: set[tuple[int, str]] = set()
        for unit in listed:
            name = _label(unit, mixed=mixed)
            for at, value in enumerate(_figures(unit, usable=unit.uuid in counted)):
                if value is not None:
                    _GAUGES[at].labels(gpu=name, node=self._node).set(value)
                    now.add((at, name))
        for at, name in self._shown - now:
            metrics.forget(_GAUGES[at], name, self._node)
        self._shown = now
        _DEVICES.labels(node=self._node).set(len(counted))


def _label(unit: Unit, *, mixed: bool) -> str:
    """The driver's index, with the vendor on a node of several; of a part its uuid, because parts share an index."""
    if unit.role == "part":
        return unit.uuid
    return f"{unit.vendor.lower()}{unit.index}" if mixed else str(unit.index)


def _figures(unit: Unit, *, usable: bool) -> tuple[float | None, ...]:
    """In the order of the gauges."""
    live = unit.live
    return (
        live.temperature_celsius,
        None if live.util_percent is None else live.util_percent / 100,
        _bytes(live.memory_used_mib),
        _bytes(live.memory_free_mib),
        live.power_watts,
        None if live.sm_clock_mhz is None else live.sm_clock_mhz * 1e6,
        None if live.throttle is None else float(bool(live.throttle)),
        live.ecc_uncorrected,
        float(usable),
    )


def _bytes(mib: int | None) -> float | None:
    return None if mib is None else float(mib << 20)
