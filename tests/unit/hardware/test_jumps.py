"""Telemetry that should not wait for the next period."""

from typing import Any

import pytest

from flexinfer.contracts.events import EngineTelemetry
from flexinfer.core.hardware.findings import Live, Unit
from flexinfer.core.hardware.telling import jumped, kv_ratio, telemetry_event


def event(**fields: Any) -> Any:
    live = Live(**{name: fields.pop(name) for name in list(fields) if name in Live.__dataclass_fields__})
    units = fields.pop("units", [Unit(vendor="AMD", index=0, uuid="u", source="sysfs", live=live)])
    values = {"cpu_util": 10.0, "memory_free_mib": 8000, "engines": ()} | fields
    return telemetry_event("n", 2.0, units, **values)


@pytest.mark.parametrize(
    ("before", "after", "jump"),
    [
        ({"util_percent": 10.0}, {"util_percent": 34.0}, False),
        ({"util_percent": 10.0}, {"util_percent": 35.0}, True),
        ({"util_percent": 10.0}, {}, True),
        ({"memory_free_mib": 8000}, {"memory_free_mib": 7500}, False),
        ({"throttle": ()}, {"throttle": ("hw-thermal",)}, True),
        ({"xid_last": None}, {"xid_last": 79}, True),
        ({"ecc_uncorrected": 0}, {"ecc_uncorrected": 1}, True),
        ({"temperature_celsius": 40.0}, {"temperature_celsius": 90.0}, False),
        ({"cpu_util": 10.0}, {"cpu_util": 45.0}, False),
        ({"cpu_util": 10.0}, {"cpu_util": 70.0}, True),
        ({"errors": ()}, {"errors": ("NVIDIA: timeout",)}, True),
        ({}, {"units": []}, True),
        ({"engines": ()}, {"engines": (EngineTelemetry(namespace="a", pod="b"),)}, True),
    ],
)
def test_jumps(before: dict[str, Any], after: dict[str, Any], jump: bool) -> None:
    assert jumped(event(**before), event(**after)) is jump


def test_the_first_event_is_a_jump() -> None:
    assert jumped(None, event())


def test_kv_use_is_that_of_the_fullest_engine() -> None:
    def engine(ratio: float | None) -> EngineTelemetry:
        return EngineTelemetry(namespace="a", pod="b", kv_cache_ratio=ratio)

    assert kv_ratio([engine(0.2), engine(None), engine(0.7)]) == 0.7
    assert kv_ratio([engine(None)]) is None
    assert kv_ratio([]) == 0.0
    assert kv_ratio(None) is None
