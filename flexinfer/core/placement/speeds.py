"""Measured tokens/s of one workload by device class, and the estimate for classes nobody measured.

Decoding is bound by memory bandwidth, so a class of the same vendor and architecture is estimated by the ratio of
bandwidths. The table holds vendors' published figures in GB/s, by product as device classes write it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from flexinfer.contracts.events import BenchCompleted
from flexinfer.core.fleet.view import FleetView

BANDWIDTH_GB_S: dict[str, float] = {
    "geforce-rtx-3060": 360, "geforce-rtx-3070": 448, "geforce-rtx-3080": 760, "geforce-rtx-3090": 936,
    "geforce-rtx-4060": 272, "geforce-rtx-4060-ti": 288, "geforce-rtx-4070": 504, "geforce-rtx-4080": 717,
    "geforce-rtx-4090": 1008, "geforce-rtx-5070": 672, "geforce-rtx-5080": 960, "geforce-rtx-5090": 1792,
    "rtx-a4000": 448, "rtx-a5000": 768, "rtx-a6000": 768, "rtx-6000-ada-generation": 960,
    "t4": 320, "tesla-t4": 320, "a10": 600, "a10g": 600, "a40": 696, "l4": 300, "l40": 864, "l40s": 864,
    "a100-pcie-40gb": 1555, "a100-sxm4-40gb": 1555, "a100-pcie-80gb": 1935, "a100-sxm4-80gb": 2039,
    "h100-pcie": 2039, "h100-80gb-hbm3": 3350, "h100-nvl": 3938, "h200": 4800, "b200": 8000,
    "radeon-rx-7800-xt": 624, "radeon-rx-7900-xt": 800, "radeon-rx-7900-xtx": 960, "radeon-pro-w7900": 864,
    "instinct-mi210": 1638, "instinct-mi250x": 3277, "instinct-mi300x": 5300, "instinct-mi325x": 6000,
    "arc-a770-graphics": 560, "arc-a750-graphics": 512, "arc-b580-graphics": 456,
}  # fmt: skip

_CLASS = re.compile(r"(nvidia|amd|intel)-(.+)-(sm-[0-9a-z]+|gfx[0-9a-f]+|xe[0-9a-z-]*|unknown)-([0-9]+)g-x([0-9]+)")


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens/s with its origin: the key of the result, or a note that it is an estimate."""

    tokens_per_second: float
    key: str
    note: str = ""

    @property
    def estimated(self) -> bool:
        """Not measured on this class."""
        return bool(self.note)


def bandwidth(device_class: str) -> tuple[str, float] | None:
    """``(family, GB/s)`` of a whole-device class; None for partitions and products outside the table.

    Within one family (vendor, architecture and count) speeds scale.

    >>> bandwidth("nvidia-geforce-rtx-4090-sm-89-24g-x1")
    ('nvidia/sm-89/1', 1008)
    """
    found = _CLASS.fullmatch(device_class)
    if not found:
        return None
    vendor, product, arch, _, count = found.groups()
    speed = BANDWIDTH_GB_S.get(product)
    return None if speed is None else (f"{vendor}/{arch}/{count}", speed)


class Speeds:
    """Results of one workload, looked up by device class and driver major."""

    def __init__(self, results: Iterable[tuple[BenchCompleted, float]]) -> None:
        """``results``: each with the time it was observed; the newest of equals counts."""
        self._by_class: dict[str, list[tuple[BenchCompleted, float]]] = {}
        for result, at in sorted(results, key=lambda pair: (pair[1], pair[0].key), reverse=True):
            self._by_class.setdefault(result.device_class, []).append((result, at))
        self._known: dict[tuple[str, str], Speed | None] = {}
        self._at = {result.key: at for found in self._by_class.values() for result, at in found}

    def of(self, device_class: str, driver_major: str) -> Speed | None:
        """Measured, else estimated, else None."""
        key = (device_class, driver_major)
        if key not in self._known:
            self._known[key] = self._measured(device_class, driver_major) or self._estimate(device_class)
        return self._known[key]

    def observed_at(self, key: str) -> float | None:
        """When the result of this key was observed."""
        return self._at.get(key)

    def _measured(self, device_class: str, driver_major: str) -> Speed | None:
        found = self._by_class.get(device_class)
        if not found:
            return None
        result = next((result for result, _ in found if result.driver_major == driver_major), found[0][0])
        return Speed(result.tokens_per_second, result.key)

    def _estimate(self, device_class: str) -> Speed | None:
        mine = bandwidth(device_class)
        if mine is None:
            return None
        for other in sorted(self._by_class):
            theirs = bandwidth(other)
            if theirs is not None and theirs[0] == mine[0]:
                result = self._by_class[other][0][0]
                speed = result.tokens_per_second * mine[1] / theirs[1]
                return Speed(speed, result.key, f"estimated from {other} by memory bandwidth")
        return None


def speeds_of(view: FleetView, workload: str) -> Speeds:
    """Results for a pod's benchmark key, which names a workload or one of its results."""
    if workload in view.results:
        workload = view.results[workload].workload
    found = view.by_workload.get(workload, {}) if workload else {}
    return Speeds((result, view.result_at[key]) for key, result in found.items())
