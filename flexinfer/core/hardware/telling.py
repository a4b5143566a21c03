"""The events of one node from its inventory: hardware, telemetry, and when a figure jumped."""

from collections.abc import Mapping, Sequence

from flexinfer.contracts.events import DeviceTelemetry, EngineTelemetry, NodeHardware, NodeTelemetry, Percent
from flexinfer.core.hardware.findings import Live, Unit
from flexinfer.core.hardware.inventory import Inventory

JUMP_POINTS = 25.0
JUMP_SHARE = 0.1
JUMP_KV = 0.1


def hardware_event(
    node: str, inventory: Inventory, labels: Mapping[str, str], version: str, *, virtual: bool = False
) -> NodeHardware:
    """All that is known of the node's hardware."""
    return NodeHardware(
        node=node,
        devices=inventory.devices,
        cpu=inventory.cpu,
        labels=dict(labels),
        virtual=virtual,
        agent_version=version,
        health=inventory.health,
    )


def device_telemetry(unit: Unit) -> DeviceTelemetry:
    """One unit's live figures."""
    live: Live = unit.live
    return DeviceTelemetry(
        index=unit.index,
        uuid=unit.uuid,
        util_percent=live.util_percent,
        memory_used_mib=live.memory_used_mib,
        memory_free_mib=live.memory_free_mib,
        temperature_celsius=live.temperature_celsius,
        power_watts=live.power_watts,
        sm_clock_mhz=live.sm_clock_mhz,
        throttle=live.throttle,
        ecc_uncorrected=live.ecc_uncorrected,
        xid_last=live.xid_last,
    )


def kv_ratio(engines: Sequence[EngineTelemetry] | None) -> float | None:
    """The fullest KV cache on the node; 0 when there is no engine; None when that is not known."""
    if engines is None:
        return None
    if not engines:
        return 0.0
    known = [engine.kv_cache_ratio for engine in engines if engine.kv_cache_ratio is not None]
    return max(known) if known else None


def telemetry_event(  # noqa: PLR0913 - the parts of the event
    node: str,
    interval: float,
    units: Sequence[Unit],
    *,
    cpu_util: Percent | None,
    memory_free_mib: int | None,
    engines: Sequence[EngineTelemetry] | None,
    errors: Sequence[str] = (),
) -> NodeTelemetry:
    """The node's live figures; ``engines`` None means that the pods of the node are not known."""
    return NodeTelemetry(
        node=node,
        interval_seconds=interval,
        devices=tuple(device_telemetry(unit) for unit in units),
        cpu_util_percent=cpu_util,
        memory_free_mib=memory_free_mib,
        kv_cache_ratio=kv_ratio(engines),
        engines=tuple(engines or ()),
        errors=tuple(errors)[:16],
    )


def jumped(told: NodeTelemetry | None, now: NodeTelemetry) -> bool:
    """Whether readers should not wait for the next period: a figure appeared, vanished or moved far."""
    if told is None:
        return True
    if (
        _far(told.cpu_util_percent, now.cpu_util_percent, JUMP_POINTS * 2)
        or _far(told.kv_cache_ratio, now.kv_cache_ratio, JUMP_KV)
        or _far_share(told.memory_free_mib, now.memory_free_mib)
        or told.errors != now.errors
        or [(e.namespace, e.pod) for e in told.engines] != [(e.namespace, e.pod) for e in now.engines]
    ):
        return True
    before = {device.uuid: device for device in told.devices}
    return before.keys() != {device.uuid for device in now.devices} or any(
        _device_jumped(before[device.uuid], device) for device in now.devices
    )


def _device_jumped(told: DeviceTelemetry, now: DeviceTelemetry) -> bool:
    return (
        _far(told.util_percent, now.util_percent, JUMP_POINTS)
        or _far_share(told.memory_free_mib, now.memory_free_mib)
        or (told.throttle or ()) != (now.throttle or ())
        or told.ecc_uncorrected != now.ecc_uncorrected
        or told.xid_last != now.xid_last
    )


def _far(old: float | None, new: float | None, least: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(old - new) >= least


def _far_share(old: int | None, new: int | None) -> bool:
    """Free memory: a tenth of the larger figure, and at least 256 MiB."""
    return _far(old, new, max(256.0, JUMP_SHARE * max(old or 0, new or 0)))
