"""Machines made for one rule each, in the format of the captures."""

from typing import Any

CPUINFO = "processor\t: 0\nflags\t\t: fpu sse sse2 avx avx2\n"


def case(*, files: dict[str, str] | None = None, links: dict[str, str] | None = None, **inputs: Any) -> dict[str, Any]:
    """A capture with these inputs; ``python`` and commands by their key."""
    return {
        "id": "made-up",
        "inputs": {"files": {"/proc/cpuinfo": CPUINFO, **(files or {})}, "links": links or {}, "env": {}, **inputs},
        "expected": {},
        "telemetry": {},
    }


def pci(address: str, vendor: str, device: str, code: str, driver: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """(files, links) of one function of the bus."""
    base = f"/sys/bus/pci/devices/{address}"
    files = {f"{base}/vendor": f"0x{vendor}\n", f"{base}/device": f"0x{device}\n", f"{base}/class": f"0x{code}\n"}
    return files, {f"{base}/driver": f"../../../../bus/pci/drivers/{driver}"} if driver else {}


def bus(*functions: tuple[dict[str, str], dict[str, str]]) -> dict[str, dict[str, str]]:
    """``files`` and ``links`` of several functions together."""
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for found, linked in functions:
        files |= found
        links |= linked
    return {"files": files, "links": links}


def nvidia(address: str, driver: str | None = "nvidia") -> tuple[dict[str, str], dict[str, str]]:
    """An NVIDIA function of the bus."""
    return pci(address, "10de", "2684", "030000", driver)


def row(index: int, address: str = "00000000:17:00.0", **fields: str) -> dict[str, str]:
    """One device of ``nvidia-smi#fields``: a healthy RTX 4090 unless told otherwise."""
    return {
        "index": str(index),
        "uuid": f"GPU-0000000{index}-0000-4000-8000-000000000000",
        "name": "NVIDIA GeForce RTX 4090",
        "pci.bus_id": address,
        "memory.total": "24564",
        "memory.used": "564",
        "memory.free": "24000",
        "utilization.gpu": "10",
        "temperature.gpu": "40",
        "power.draw": "50.00",
        "compute_cap": "8.9",
        "driver_version": "575.57.08",
        "mig.mode.current": "[N/A]",
    } | {name.replace("__", "."): value for name, value in fields.items()}


def smi(*rows: dict[str, str], listing: str = "", **model: Any) -> dict[str, Any]:
    """Commands of an nvidia-smi with these devices."""
    commands: dict[str, Any] = {"nvidia-smi#fields": {"gpus": list(rows), "bad_fields": [], "rc": 0} | model}
    if listing:
        commands["nvidia-smi -L"] = {"stdout": listing, "stderr": "", "rc": 0}
    return commands


def card(**values: str) -> dict[str, str]:
    """One card of ``rocm-smi#json``: a RX 7900 XTX unless told otherwise."""
    return {
        "GPU use (%)": "5", "VRAM Total Memory (B)": "25753026560", "VRAM Total Used Memory (B)": "0",
        "Card Series": "Radeon RX 7900 XTX", "GFX Version": "gfx1100",
    } | values  # fmt: skip


def rocm(*cards: dict[str, str]) -> dict[str, Any]:
    """Commands of a rocm-smi with these cards."""
    return {"rocm-smi#json": {"cards": {f"card{at}": entry for at, entry in enumerate(cards)}}}
