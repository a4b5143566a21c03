"""The PCI bus as a witness: which accelerators are plugged in and which driver holds them, whatever tools say.

Class codes and ids are the PCI SIG's; NVIDIA ids change too often for a table, so an NVIDIA id only says that
something is there.
"""

import re
from dataclasses import dataclass

from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware import gfx
from flexinfer.core.hardware.findings import Fault

_VENDORS: dict[str, Vendor] = {"10de": "NVIDIA", "1002": "AMD", "8086": "INTEL"}
_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")

# Intel boards with memory of their own: Arc A, Arc B, Flex, Max.
INTEL_DISCRETE = frozenset(
    {
        *(f"56{n:02x}" for n in (*range(0x90, 0x98), *range(0xA0, 0xA7), *range(0xB0, 0xB4), *range(0xBA, 0xBE))),
        "56c0", "56c1", "56c2", "4905", "4906", "4907", "4908",
        "0bd0", "0bd4", "0bd5", "0bd6", "0bd7", "0bd8", "0bd9", "0bda", "0bdb", "0b69", "0b6e",
        "e202", "e209", "e20b", "e20c", "e20d", "e210", "e211", "e212", "e215", "e216",
        "e220", "e221", "e222", "e223",
    }
)  # fmt: skip
# Sold as Arc B390 and B370, but graphics inside the processor.
_INTEL_INTEGRATED = frozenset(f"b0{n:02x}" for n in range(0x80, 0x90))


@dataclass(frozen=True, slots=True)
class PciGpu:
    """One function of the bus that is an accelerator. ``driver`` is the kernel driver bound to it, if any."""

    address: str
    vendor: Vendor
    device_id: str
    driver: str | None = None
    numa: int | None = None

    @property
    def integrated(self) -> bool:
        """Graphics inside the processor, as far as the id tells."""
        if self.vendor == "AMD":
            return gfx.from_chip(self.device_id) in gfx.INTEGRATED
        return self.vendor == "INTEL" and not intel_is_discrete(self.device_id, self.address)


def address_of(text: str | None) -> str | None:
    """``00000000:17:00.0`` and ``0000:17:00.0`` as ``0000:17:00.0``; None if there is no address in the text."""
    match = _ADDRESS.search(text or "")
    if not match:
        return None
    domain, bus, slot, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function}".lower()


def intel_is_discrete(device_id: str, address: str | None, *, own_memory: bool = False) -> bool:
    """By id; an id newer than the table by having memory of its own and not sitting on the processor's bus."""
    if device_id in INTEL_DISCRETE:
        return True
    if device_id in _INTEL_INTEGRATED or (address or "").startswith("0000:00:"):
        return False
    return own_memory


def gpu_of(
    address: str, vendor_id: str, device_id: str, device_class: str, driver: str | None, numa: int | None
) -> PciGpu | None:
    """The accelerator these sysfs files describe, or None.

    Display controllers (class 03xx) count, for AMD processing accelerators (12xx) too. Functions other than .0 are
    audio, USB and virtual functions of a card that is counted already.
    """
    vendor = _VENDORS.get(vendor_id.strip().lower().removeprefix("0x"))
    place = address_of(address)
    code = device_class.strip().lower().removeprefix("0x")
    if vendor is None or place is None or not place.endswith(".0") or not re.fullmatch(r"[0-9a-f]{6}", code):
        return None
    if code[:2] != "03" and not (vendor == "AMD" and code[:2] == "12"):
        return None
    chip = device_id.strip().lower().removeprefix("0x")
    return PciGpu(place, vendor, chip, driver, numa if numa is not None and numa >= 0 else None)


def fault_of(gpu: PciGpu) -> Fault | None:
    """Why nobody could speak for this device, as far as the bound driver tells."""
    if gpu.driver in {"vfio-pci", "pci-stub", "xen-pciback", "pciback"} or (gpu.driver or "").endswith("vfio-pci"):
        return Fault("passthrough", "passthrough", f"bound to {gpu.driver}")
    if gpu.driver is None:
        return Fault("driver-error", "no-driver", "no kernel driver is bound")
    if gpu.driver in {"nouveau", "nvidiafb", "nova_core"}:
        return Fault("driver-error", "driver-not-loaded", f"bound to {gpu.driver}")
    return None
