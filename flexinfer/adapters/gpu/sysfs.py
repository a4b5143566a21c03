"""Finds the kernel's files about accelerators: the PCI bus, DRM cards, KFD nodes, Jetson boards.

Paths are looked up in /sys and, where the pod has no host /sys, below the host mount.
"""

import re
from dataclasses import dataclass, field

from flexinfer.core.hardware import cuda, intel, sysfs
from flexinfer.core.hardware.amd import KfdNode, Reading
from flexinfer.core.hardware.nvidia import Jetson
from flexinfer.core.hardware.pci import PciGpu, gpu_of
from flexinfer.core.hardware.readings import count, integer, number, text_of, words
from flexinfer.ports import HostFiles

PCI = "/bus/pci/devices"
DRM = "/class/drm"
KFD = "/class/kfd/kfd/topology/nodes"
_CARD = re.compile(r"card\d{1,4}")
_LOAD_DIRS = ("/devices", "/devices/platform", "/devices/platform/tegra-soc", "/devices/platform/bus@0")
_GPU_DIR = re.compile(r"(?:[0-9a-f]+\.)?(?:gpu|gp10b|gv11b|ga10b|gb10b)(?:\.\d+)?|gpu\.\d+")
_SMALL = 256


@dataclass(slots=True)
class Kernel:
    """The files of one machine. ``files`` is rooted; ``host_root`` is where the host is mounted inside that."""

    files: HostFiles
    host_root: str
    _load_file: str | None = field(default=None)
    _sys: str | None = field(default=None)

    @property
    def sys(self) -> str:
        """``/sys``, or the host's where ours has no PCI bus. Settled by the first bus that is seen."""
        if self._sys is None:
            for place in ("/sys", self.host_root.rstrip("/") + "/sys"):
                if self.files.listdir(place + PCI):
                    self._sys = place
                    break
        return self._sys or "/sys"

    @property
    def blind(self) -> bool:
        """No PCI bus to be seen at all: a locked-down container, or a machine without one."""
        return not self.files.listdir(self.sys + PCI)

    def text(self, path: str) -> str:
        """A small file's text without outer blanks, empty if missing."""
        return text_of(self.files.read(path, _SMALL)).strip()

    def gpus(self) -> tuple[PciGpu, ...]:
        """Accelerators on the bus in the order of their addresses."""
        base = self.sys + PCI
        found: list[PciGpu] = []
        for address in self.files.listdir(base):
            place = f"{base}/{address}"
            code = self.text(f"{place}/class")
            if code[:4] not in {"0x03", "0x12"}:
                continue
            link = self.files.readlink(f"{place}/driver")
            gpu = gpu_of(
                address,
                self.text(f"{place}/vendor"),
                self.text(f"{place}/device"),
                code,
                link.rstrip("/").rpartition("/")[2] if link else None,
                integer(self.text(f"{place}/numa_node")),
            )
            if gpu:
                found.append(gpu)
        return tuple(found)

    def cards(self, vendor_id: str) -> dict[str, str]:
        """PCI address → device directory of the DRM cards of one vendor (``0x1002``)."""
        base = self.sys + DRM
        found: dict[str, str] = {}
        for name in self.files.listdir(base):
            if not _CARD.fullmatch(name):
                continue
            device = f"{base}/{name}/device"
            if self.text(f"{device}/vendor").lower() != vendor_id:
                continue
            pci = sysfs.slot_of(self.files.read(f"{device}/uevent", 4096), self.files.readlink(device))
            found[pci or name] = device
        return found

    def amd_directories(self, gpus: tuple[PciGpu, ...]) -> dict[str, str]:
        """Device directories of AMD cards; a card without a DRM name is found by its PCI directory."""
        found = self.cards("0x1002")
        for gpu in gpus:
            place = f"{self.sys}{PCI}/{gpu.address}"
            if gpu.vendor == "AMD" and gpu.address not in found and self.text(f"{place}/mem_info_vram_total"):
                found[gpu.address] = place
        return found

    def amd_card(self, pci: str, device: str) -> Reading:
        """One AMD card with its sensors."""
        names = {name: f"{device}/{name}" for name in (*sysfs.CARD_FACTS, *sysfs.CARD_FIGURES)}
        names |= self._sensors(device, sysfs.SENSORS)
        raw = {name: self.files.read(path, _SMALL) for name, path in names.items()}
        driver = words(self.text(f"{self.sys}/module/amdgpu/version"))
        return sysfs.card(pci if ":" in pci else None, raw, driver)

    def _sensors(self, device: str, wanted: tuple[str, ...]) -> dict[str, str]:
        monitors = self.files.listdir(f"{device}/hwmon")
        return {name: f"{device}/hwmon/{monitors[0]}/{name}" for name in wanted} if monitors else {}

    def kfd_nodes(self) -> tuple[KfdNode, ...]:
        """GPU nodes of the KFD topology in their order."""
        base = self.sys + KFD
        found: list[KfdNode] = []
        for name in sorted(self.files.listdir(base), key=lambda text: integer(text) or 0):
            number_of = integer(name)
            gpu_id = self.files.read(f"{base}/{name}/gpu_id", _SMALL)
            if number_of is None or not count(text_of(gpu_id).strip()):
                continue
            banks = [
                self.files.read(f"{base}/{name}/mem_banks/{bank}/properties", 4096)
                for bank in self.files.listdir(f"{base}/{name}/mem_banks")
            ]
            node = sysfs.kfd_node(number_of, self.files.read(f"{base}/{name}/properties", 8192), gpu_id, banks)
            if node:
                found.append(node)
        return tuple(found)

    def intel_cards(self) -> tuple[intel.Reading, ...]:
        """Intel cards with what their driver tells of memory and sensors."""
        found: list[intel.Reading] = []
        for pci, device in self.cards("0x8086").items():
            card = device.removesuffix("/device")
            names = {name: f"{device}/{name}" for name in (*intel.tile_files(), intel.CLOCK_FILE)}
            names |= self._sensors(device, intel.SENSORS)
            raw = {name: self.files.read(path, _SMALL) for name, path in names.items()}
            for name in intel.CARD_FACTS:
                raw[name] = self.files.read(f"{card}/{name}", _SMALL) or self.files.read(f"{device}/{name}", _SMALL)
            tiles = sum(1 for entry in self.files.listdir(f"{card}/gt") if re.fullmatch(r"gt\d+", entry))
            chip = self.text(f"{device}/device").lower().removeprefix("0x")
            link = self.files.readlink(f"{device}/driver")
            driver = link.rstrip("/").rpartition("/")[2] if link else None
            found.append(intel.card(pci if ":" in pci else None, chip, raw, driver, tiles))
        return tuple(found)

    def jetson(self) -> Jetson | None:
        """The Tegra board this is, or None."""
        for tree in ("/proc/device-tree", self.host_root.rstrip("/") + "/proc/device-tree",
                     self.sys + "/firmware/devicetree/base"):  # fmt: skip
            model = words(text_of(self.files.read(f"{tree}/model", _SMALL)).strip("\0 \n"))
            compatible = text_of(self.files.read(f"{tree}/compatible", 1024))
            if model and (re.search(r"jetson|tegra", f"{model} {compatible}", re.IGNORECASE)):
                return Jetson(model, cuda.jetson_arch(f"{model} {compatible}"), self._load())
        return None

    def _load(self) -> float | None:
        """Utilisation in percent; nvgpu writes tenths."""
        if self._load_file is None:
            self._load_file = self._find_load()
        value = number(self.text(self._load_file)) if self._load_file else None
        return min(100.0, value / 10) if value is not None and value >= 0 else None

    def _find_load(self) -> str:
        for parent in _LOAD_DIRS:
            base = self.sys + parent
            for name in self.files.listdir(base):
                if _GPU_DIR.fullmatch(name) and self.text(f"{base}/{name}/load"):
                    return f"{base}/{name}/load"
        return ""
