"""Whatever bytes come from every tool and file at once, the node is described: valid labels, nothing raised."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flexinfer.ports import ToolResult

VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
PIECES = [
    b"0, GPU-00000001, NVIDIA L4, 00000000:17:00.0, 23034, 34, 23000, 11, 44, 28.00, 8.9, 575.57.08, [N/A]\n",
    b"1, GPU-00000002, X, 00000000:27:00.0, [GPU is lost], , , , , , 9.0, , Enabled\n",
    b"GPU 0: NVIDIA L4 (UUID: GPU-00000001)\n", b"  MIG 1g.10gb Device 0: (UUID: MIG-00000001)\n",
    b"Unable to determine the device handle for gpu 0000:18:00.0: Unknown Error\n", b"No devices were found\n",
    b'{"card0": {"GFX Version": "gfx1100", "VRAM Total Memory (B)": "25753026560", "Node ID": "1"}}\n',
    b'{"card1": {"GFX Version": "gfx1151", "GTT Total Memory (B)": "1e99"}, "system": {}}', b'{"card0": {',
    b'[{"gpu": 0, "vram": {"size": {"value": 24560, "unit": "MB"}}}]', b'{"gpu_data": [{"gpu": 0}]}',
    b'{"device_list": [{"device_id": 0, "pci_bdf_address": "0000:03:00.0", "memory_physical_size_byte": "9"}]}',
    b"Agent 2\n  Name:   gfx90a\n  Device Type:  GPU\n", b"\x1b[31mROCk module is NOT loaded\x1b[0m\n", b"\xff\xfe\x00",
    b"0x1002\n", b"0x10de\n", b"0x8086\n", b"0x030000\n", b"PCI_SLOT_NAME=0000:03:00.0\n", b"25753026560\n", b"-1\n",
    b"gfx_target_version 90010\nlocation_id 768\n", b"heap_type 1\nsize_in_bytes 34342961152\n", b"", b"CPX\n",
]  # fmt: skip
noise = st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join))
results = st.builds(
    ToolResult,
    noise,
    noise,
    st.sampled_from([0, 2, 9, 14, 125, 127, 255]),
    found=st.booleans(),
    timed_out=st.just(False),
)
PATHS = [
    "/sys/bus/pci/devices/0000:03:00.0/vendor", "/sys/bus/pci/devices/0000:03:00.0/class",
    "/sys/bus/pci/devices/0000:03:00.0/device", "/sys/bus/pci/devices/0000:17:00.0/vendor",
    "/sys/bus/pci/devices/0000:17:00.0/class", "/sys/class/drm/card0/device/vendor",
    "/sys/class/drm/card0/device/uevent", "/sys/class/drm/card0/device/mem_info_vram_total",
    "/sys/class/drm/card0/device/mem_info_gtt_total", "/sys/class/drm/card0/device/gpu_busy_percent",
    "/sys/class/drm/card0/device/tile0/vram0/total_bytes", "/sys/class/kfd/kfd/topology/nodes/1/properties",
    "/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "/sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/device-tree/model", "/sys/class/drm/card0/device/hwmon/hwmon0/temp1_input",
]  # fmt: skip


class NoisyTools:
    """Every tool answers with the next piece of noise."""

    def __init__(self, answers: list[ToolResult]) -> None:
        self.answers = answers
        self.at = 0

    async def run(self, argv: Sequence[str], timeout: float = 10.0) -> ToolResult:  # noqa: ASYNC109 - as in ports.Tools
        self.at += 1
        return self.answers[self.at % len(self.answers)]


class NoisyFiles:
    """A tree whose files hold noise."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, path: str, limit: int = 1 << 20) -> bytes | None:
        found = self.files.get(path)
        return None if found is None else found[:limit]

    def listdir(self, path: str) -> tuple[str, ...]:
        start = path.rstrip("/") + "/"
        return tuple(sorted({name[len(start) :].split("/")[0] for name in self.files if name.startswith(start)}))

    def readlink(self, path: str) -> str | None:
        return "../../drivers/amdgpu" if path.endswith("3:00.0/driver") else None


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answers=st.lists(results, min_size=1, max_size=6), files=st.dictionaries(st.sampled_from(PATHS), noise))
def test_the_node_is_described(
    answers: list[ToolResult], files: dict[str, bytes], replay_of: Any, machines: Any
) -> None:
    replayed = replay_of(machines.case(), files=NoisyFiles(files), tools=NoisyTools(answers))

    async def twice() -> dict[str, Any]:
        await replayed.document()
        for source in replayed.sources:
            if source.period is not None:
                await source.sample()
        return await replayed.document()

    found = asyncio.run(twice())

    assert all(VALUE.fullmatch(value) for value in found["labels"].values()), found["labels"]
    assert len({device["uuid"] for device in found["devices"]}) == len(found["devices"])
    for device in found["devices"]:
        assert device["memoryMib"] is None or device["memoryMib"] > 0
        live = device["telemetry"]
        assert live["utilPercent"] is None or 0 <= live["utilPercent"] <= 100
        assert live["memoryFreeMib"] is None or live["memoryFreeMib"] >= 0
