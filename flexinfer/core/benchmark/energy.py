"""Energy per token from what the agent saw of the node's accelerators while the headline stage ran."""

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from flexinfer.contracts.events import NodeTelemetry

MIN_SAMPLES = 3
MIN_COVERAGE = 0.6  # of the stage, between the first and the last sample inside it


@dataclass(frozen=True, slots=True)
class PowerSample:
    """Telemetry of the node with its observation time in Unix seconds."""

    at: float
    telemetry: NodeTelemetry


def demanded_count(device_class: str) -> int:
    """Accelerators a device class stands for: 2 of ``…-24g-x2``, 0 of a CPU class."""
    found = re.search(r"-x(\d+)$", device_class)
    return int(found.group(1)) if found else 0


def joules_per_token(
    samples: Sequence[PowerSample], count: int, window: tuple[float, float], tokens: int
) -> float | None:
    """Joules per completion token of the ``count`` devices that drew most between ``window``'s two times.

    Which devices the engine holds is not told everywhere, so the ones that drew most are taken; that includes
    what they draw when idle. None without accelerators, without power readings, or when the readings cover less
    than MIN_COVERAGE of the window.
    """
    began, ended = window
    if count == 0 or tokens <= 0 or ended <= began:
        return None
    inside = sorted((s for s in samples if began <= s.at <= ended), key=lambda s: s.at)
    if len(inside) < MIN_SAMPLES or inside[-1].at - inside[0].at < MIN_COVERAGE * (ended - began):
        return None
    watts = sorted((_mean(series) for series in _series(inside).values()), reverse=True)
    if len(watts) < count:
        return None
    return sum(watts[:count]) * (ended - began) / tokens


def _series(samples: Sequence[PowerSample]) -> dict[str, list[tuple[float, float]]]:
    """Power over time per device; devices with a missing reading are left out, a gap would count as average."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        for device in sample.telemetry.devices:
            if device.power_watts is not None:
                found[device.uuid].append((sample.at, device.power_watts))
    return {uuid: series for uuid, series in found.items() if len(series) == len(samples)}


def _mean(series: Sequence[tuple[float, float]]) -> float:
    """Mean by the trapezoid rule: samples are not evenly spaced, a jump is reported at once."""
    energy = sum((late[0] - early[0]) * (early[1] + late[1]) / 2 for early, late in itertools.pairwise(series))
    seconds = series[-1][0] - series[0][0]
    return energy / seconds if seconds > 0 else series[0][1]
