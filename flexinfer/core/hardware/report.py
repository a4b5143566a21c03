"""What ``flexinfer-agent --once`` prints: one document for programs, one table for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flexinfer.core.hardware.findings import Attempt
from flexinfer.core.hardware.inventory import Inventory
from flexinfer.core.hardware.telling import device_telemetry


def document(
    inventory: Inventory, labels: Mapping[str, str], annotations: Mapping[str, str], attempts: Iterable[Attempt]
) -> dict[str, Any]:
    """``{"labels", "annotations", "devices", "cpu", "sources", "problems"}``, devices with their figures."""
    devices = []
    for unit, device in zip(inventory.units, inventory.devices, strict=True):
        figures = msgspec.to_builtins(device_telemetry(unit))
        told = msgspec.to_builtins(device)
        told["telemetry"] = {name: value for name, value in figures.items() if name not in {"index", "uuid"}}
        devices.append(told)
    return {
        "labels": dict(labels),
        "annotations": dict(annotations),
        "devices": devices,
        "cpu": msgspec.to_builtins(inventory.cpu),
        "sources": [
            {
                "name": attempt.source,
                "outcome": attempt.outcome,
                "reason": attempt.reason,
                "detail": attempt.detail,
                "seconds": round(attempt.seconds, 3),
            }
            for attempt in attempts
        ],
        "problems": list(inventory.problems),
    }


def table(found: Mapping[str, Any]) -> str:
    """The same document for a person."""
    cpu = found["cpu"]
    avx512 = "yes" if cpu["avx512"] else "no"
    what = f"{cpu['model'] or 'unknown model'}, {cpu['threads'] or '?'} threads, {_size(cpu['memoryMib'])} memory"
    parts = [f"CPU     {what}, AVX-512 {avx512}"]
    if found["devices"]:
        rows = [["#", "PRODUCT", "ARCH", "MEMORY", "FREE", "UTIL", "TEMP", "POWER", "PCI", "HEALTH"]]
        rows += [_row(device) for device in found["devices"]]
        parts += ["", _columns(rows)]
    else:
        parts += ["GPU     none found"]
    parts += ["", "LABELS", _columns([["  " + key, value] for key, value in sorted(found["labels"].items())])]
    shown = {key: value for key, value in found["annotations"].items() if not key.endswith("gpu-devices")}
    if shown:
        parts += ["", "ANNOTATIONS", _columns([["  " + key, value] for key, value in sorted(shown.items())])]
    if found["sources"]:
        tried = [
            ["  " + s["name"], s["outcome"], s["reason"], f"{s['seconds']:.2f} s", s["detail"]]
            for s in found["sources"]
        ]
        parts += ["", "TRIED", _columns(tried)]
    if found["problems"]:
        parts += ["", "PROBLEMS", *("  " + line for line in found["problems"])]
    return "\n".join(parts) + "\n"


def _row(device: Mapping[str, Any]) -> list[str]:
    live = device["telemetry"]
    partition = device["partition"]
    product = device["product"] or "unknown"
    return [
        str(device["index"]),
        f"{product} {partition['profile'] or partition['kind']}" if partition else product,
        device["arch"] or "?",
        _size(device["memoryMib"]) + (" unified" if device["memoryType"] == "unified" else ""),
        _size(live["memoryFreeMib"]),
        _unit(live["utilPercent"], "%"),
        _unit(live["temperatureCelsius"], " C"),
        _unit(live["powerWatts"], " W"),
        device["pci"] or "-",
        device["health"]["state"] + ("" if device["counted"] else " (not counted)"),
    ]


def _size(mib: int | None) -> str:
    if mib is None:
        return "?"
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"


def _unit(value: float | None, unit: str) -> str:
    return "?" if value is None else f"{value:.0f}{unit}"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
