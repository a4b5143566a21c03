"""Degraded mode: the fleet as Node labels, annotations and the benchmark ConfigMaps tell it.

These are projections of events, coarser and of unknown age: what they say of load counts as late telemetry. The next
snapshot of the bus replaces all of it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from flexinfer.contracts.events import (
    BenchCompleted,
    Cpu,
    Device,
    DeviceTelemetry,
    NodeHardware,
    NodeTelemetry,
    Vendor,
)
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.fleet.fold import learn_result
from flexinfer.core.fleet.pods import count_of
from flexinfer.core.fleet.view import FleetView

ANNOTATION_SECONDS = 300.0  # annotations are written at least this often while they change
MAX_DEVICES = 1024
VENDORS: dict[str, Vendor] = {"NVIDIA": "NVIDIA", "AMD": "AMD", "INTEL": "INTEL"}
_KIB = {"": 1 / 1024, "Ki": 1.0, "Mi": 1024.0, "Gi": 1024.0**2, "Ti": 1024.0**3}

_devices = msgspec.json.Decoder(list[dict[str, Any]])
_result = msgspec.json.Decoder(BenchCompleted)


class _ObservedAt(msgspec.Struct, rename="camel"):
    observed_at: float = 0.0


_observed = msgspec.json.Decoder(_ObservedAt)


def assume_node(view: FleetView, node: Object, now: float) -> None:
    """Take what the Node object tells for the node's hardware and load."""
    meta = node.get("metadata") or {}
    name = str(meta.get("name") or "")
    if not name:
        return
    told = _Told(node, view.prefix)
    hardware = told.hardware(name)
    telemetry = told.telemetry(name, hardware.devices)
    known = view.node(name)
    if known.assumed and (known.hardware, known.telemetry) == (hardware, telemetry):
        return
    known.hardware, known.telemetry, known.telemetry_at = hardware, telemetry, now
    known.figures = {device.uuid: device for device in telemetry.devices}
    known.assumed = True
    known.seen_at = now
    view.touch(name)


def assume_results(view: FleetView, configmaps: Iterable[Object]) -> int:
    """Take the recorded results; the number of entries that could not be read."""
    unreadable = 0
    for configmap in configmaps:
        data: Mapping[str, Any] = configmap.get("data") or {}
        for text in data.values():
            try:
                result = _result.decode(str(text))
                at = _observed.decode(str(text)).observed_at
            except (msgspec.DecodeError, RecursionError):
                unreadable += 1
                continue
            learn_result(view, result, at)
    return unreadable


class _Told:
    """Reads one Node object; whatever cannot be read is absent."""

    def __init__(self, node: Object, prefix: str) -> None:
        meta = node.get("metadata") or {}
        self._prefix = prefix
        self._labels: Mapping[str, Any] = meta.get("labels") or {}
        self._annotations: Mapping[str, Any] = meta.get("annotations") or {}
        self._capacity: Mapping[str, Any] = (node.get("status") or {}).get("capacity") or {}

    def _label(self, name: str) -> str:
        return str(self._labels.get(self._prefix + name) or "")

    def _number(self, name: str) -> float | None:
        text = str(self._annotations.get(self._prefix + name) or "")
        return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text) else None

    def hardware(self, name: str) -> NodeHardware:
        cpu = Cpu(
            threads=count_of(str(self._capacity.get("cpu") or "0")) or None,
            memory_mib=_mib(str(self._capacity.get("memory") or "")),
            avx512=self._label("cpu.avx512") == "true",
        )
        labels = {str(key): str(value) for key, value in self._labels.items() if str(key).startswith(self._prefix)}
        virtual = self._label("virtual") == "true"
        return NodeHardware(
            node=name, devices=self._listed() or self._labelled(), cpu=cpu, labels=labels, virtual=virtual
        )

    def _listed(self) -> tuple[Device, ...]:
        """Per device, from the annotation that lists them."""
        text = str(self._annotations.get(self._prefix + "gpu-devices") or "")
        if not text:
            return ()
        try:
            entries = [entry | {"health": {"state": str(entry.get("health", "ok"))}} for entry in _devices.decode(text)]
            return tuple(msgspec.convert(entry, Device) for entry in entries[:MAX_DEVICES])
        except (msgspec.DecodeError, RecursionError):
            return ()

    def _labelled(self) -> tuple[Device, ...]:
        """All alike, from labels that describe one."""
        vendor = VENDORS.get(self._label("gpu.vendor"))
        if vendor is None:
            return ()
        int4 = {"true": True, "false": False}.get(self._label("gpu.int4"))
        return tuple(
            Device(
                index=index,
                uuid=f"label-{index}",
                vendor=vendor,
                product=self._label("gpu.product").replace("-", " ") or None,
                arch=self._label("gpu.arch") or None,
                memory_mib=_mib(self._label("gpu.vram")),
                int4=int4,
            )
            for index in range(min(count_of(self._label("gpu.count")), MAX_DEVICES))
        )

    def telemetry(self, name: str, devices: tuple[Device, ...]) -> NodeTelemetry:
        util, free, kv = (self._number(key) for key in ("gpu.util", "gpu-free-memory", "kv-cache-usage"))
        return NodeTelemetry(
            node=name,
            interval_seconds=ANNOTATION_SECONDS,
            devices=tuple(
                DeviceTelemetry(
                    index=device.index,
                    uuid=device.uuid,
                    util_percent=None if util is None else min(util, 100.0),
                    memory_free_mib=None if free is None else int(free / len(devices)),
                )
                for device in devices
            ),
            kv_cache_ratio=None if kv is None else min(kv, 1.0),
        )


def _mib(text: str) -> int | None:
    """MiB of a Kubernetes quantity with a binary suffix or none.

    >>> _mib("24Gi"), _mib("131072Ki"), _mib("much")
    (24576, 128, None)
    """
    found = re.fullmatch(r"([0-9]{1,15})(Ki|Mi|Gi|Ti|)", text)
    return int(int(found.group(1)) * _KIB[found.group(2)] / 1024) or None if found else None
