"""One machine per rule: what counts, who speaks for the node, what is unknown, how broken hardware is told."""

from typing import Any

import pytest

MEMINFO = "MemTotal:       126000000 kB\nMemAvailable:   110000000 kB\n"


async def test_the_vendor_with_more_memory_speaks_for_the_node(describe: Any, machines: Any) -> None:
    found = await describe(**machines.smi(machines.row(0)), **machines.rocm(machines.card(), machines.card()))

    assert found["labels"]["gpu.vendor"] == "AMD"
    assert found["labels"]["gpu.count"] == "2"
    assert {device["vendor"] for device in found["devices"]} == {"NVIDIA", "AMD"}


async def test_equal_memory_is_nvidias(describe: Any, machines: Any) -> None:
    one = machines.card(**{"VRAM Total Memory (B)": str(24564 << 20)})

    found = await describe(**machines.smi(machines.row(0)), **machines.rocm(one))

    assert found["labels"]["gpu.vendor"] == "NVIDIA"


async def test_a_hanging_tool_does_not_hide_the_other_vendor(describe: Any, machines: Any) -> None:
    hung = {"nvidia-smi": {"timeout": True}, "chroot /host nvidia-smi": {"timeout": True}}

    found = await describe(**machines.bus(machines.nvidia("0000:17:00.0")), **hung, **machines.rocm(machines.card()))

    assert found["labels"]["gpu.vendor"] == "AMD"
    assert found["labels"]["gpu.health"] == "ok"
    assert any("NVIDIA: timeout" in problem for problem in found["problems"])


async def test_mig_without_instances_gives_nothing(describe: Any, machines: Any) -> None:
    parent = machines.row(0, name="NVIDIA A100-SXM4-40GB", compute_cap="8.0", mig__mode__current="Enabled")
    listing = f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {parent['uuid']})\n"

    found = await describe(**machines.bus(machines.nvidia("0000:17:00.0")), **machines.smi(parent, listing=listing))

    assert found["labels"] == {
        "gpu.vendor": "NVIDIA", "gpu.count": "0", "gpu.health": "ok", "cpu.avx512": "false",
    }  # fmt: skip


async def test_a_divided_and_a_whole_device_add_up(describe: Any, machines: Any) -> None:
    divided = machines.row(0, name="NVIDIA H100 80GB HBM3", compute_cap="9.0", mig__mode__current="Enabled")
    whole = machines.row(
        1, "00000000:27:00.0", name="NVIDIA H100 80GB HBM3", compute_cap="9.0", memory__total="81559",
        memory__free="80000", mig__mode__current="Disabled",
    )  # fmt: skip
    listing = (
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {divided['uuid']})\n"
        "  MIG 1c.3g.40gb      Device  0: (UUID: MIG-000000b0-0000-5000-8000-000000000001)\n"
        "  MIG 1g.10gb+me      Device  1: (UUID: MIG-000000b0-0000-5000-8000-000000000002)\n"
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {whole['uuid']})\n"
    )

    found = await describe(**machines.smi(divided, whole, listing=listing))

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.vram"]) == ("3", "80Gi")
    assert found["labels"]["gpu.mixed"] == "true"
    assert found["annotations"]["gpu-free-memory"] == "80000"
    assert [device["memoryMib"] for device in found["devices"][1:]] == [40960, 10240, 81559]


@pytest.mark.parametrize("memory", ["[N/A]", "[Not Supported]", "N/A"])
async def test_a_chip_without_memory_of_its_own_has_the_systems(describe: Any, machines: Any, memory: str) -> None:
    gb10 = machines.row(
        0, "0000000F:01:00.0", name="NVIDIA GB10", compute_cap="12.1", memory__total=memory, memory__used=memory,
        memory__free=memory,
    )  # fmt: skip

    found = await describe(
        **machines.smi(gb10),
        files={"/proc/meminfo": MEMINFO} | machines.nvidia("000f:01:00.0")[0],
        links=machines.nvidia("000f:01:00.0")[1],
    )

    assert (found["labels"]["gpu.vram"], found["labels"]["gpu.memory-type"]) == ("120Gi", "unified")
    assert found["labels"]["gpu.arch"] == "sm_121"
    assert found["labels"]["gpu.health"] == "ok"
    assert found["annotations"]["gpu-free-memory"] == str(110000000 // 1024)


async def test_a_card_that_hides_its_memory_is_not_given_the_systems(describe: Any, machines: Any) -> None:
    silent = machines.row(0, memory__total="[N/A]", memory__free="[N/A]")

    found = await describe(**machines.smi(silent), files={"/proc/meminfo": MEMINFO})

    assert "gpu.vram" not in found["labels"]
    assert found["labels"]["gpu.count"] == "1"


async def test_a_superchip_has_memory_of_its_own(describe: Any, machines: Any) -> None:
    gh200 = machines.row(0, name="NVIDIA GH200 480GB", compute_cap="9.0", memory__total="97871")

    found = await describe(**machines.smi(gh200), files={"/proc/meminfo": MEMINFO})

    assert (found["labels"]["gpu.vram"], found["labels"]["gpu.memory-type"]) == ("96Gi", "dedicated")


async def test_both_numbers_of_thor_are_one_architecture(describe: Any, machines: Any) -> None:
    found = await describe(**machines.smi(machines.row(0, name="NVIDIA Thor", compute_cap="10.1")))

    assert found["labels"]["gpu.arch"] == "sm_110"


async def test_a_board_without_a_tool_is_known_by_its_device_tree(describe: Any) -> None:
    found = await describe(
        files={
            "/proc/meminfo": "MemTotal: 7800000 kB\nMemAvailable: 6000000 kB\n",
            "/proc/device-tree/model": "NVIDIA Jetson Xavier NX Developer Kit\0",
            "/sys/devices/platform/17000000.gv11b/load": "345\n",
        }
    )

    assert found["labels"] | {"gpu.product": ""} == {
        "gpu.vendor": "NVIDIA", "gpu.count": "1", "gpu.health": "ok", "gpu.arch": "sm_72", "gpu.int4": "false",
        "gpu.vram": "7Gi", "gpu.memory-type": "unified", "gpu.product": "", "cpu.avx512": "false",
    }  # fmt: skip
    assert found["annotations"]["gpu.util"] == "34.50"


async def test_wsl_has_no_pci_device(describe: Any, machines: Any) -> None:
    paravirtual = machines.pci("0000:00:01.0", "1414", "008e", "030200", "dxgkrnl")

    found = await describe(**machines.bus(paravirtual), **machines.smi(machines.row(0, "00000000:01:00.0")))

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.health"]) == ("1", "ok")


async def test_devices_given_to_virtual_machines_are_passthrough(describe: Any, machines: Any) -> None:
    found = await describe(**machines.bus(machines.nvidia("0000:17:00.0", "vfio-pci")))

    assert found["labels"] == {
        "gpu.vendor": "NVIDIA", "gpu.count": "0", "gpu.health": "passthrough", "cpu.avx512": "false",
    }  # fmt: skip


async def test_one_device_given_away_leaves_the_others_healthy(describe: Any, machines: Any) -> None:
    both = machines.bus(machines.nvidia("0000:17:00.0"), machines.nvidia("0000:27:00.0", "vfio-pci"))

    found = await describe(**both, **machines.smi(machines.row(0)))

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.health"]) == ("1", "ok")
    assert [device["health"]["state"] for device in found["devices"]] == ["ok", "passthrough"]


async def test_a_corrupt_inforom_is_a_warning_with_valid_data(describe: Any, machines: Any) -> None:
    trailer = "WARNING: infoROM is corrupted at gpu 0000:17:00.0\n"

    found = await describe(**machines.smi(machines.row(0), trailer=trailer, rc=14))

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.vram"]) == ("1", "24Gi")
    assert found["labels"]["gpu.health"] == "degraded"
    assert found["devices"][0]["counted"]


async def test_a_node_whose_only_device_is_lost_has_a_driver_error(describe: Any, machines: Any) -> None:
    text = (
        "Unable to determine the device handle for GPU0000:17:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU\n"
    )

    found = await describe(
        **machines.bus(machines.nvidia("0000:17:00.0")), **{"nvidia-smi": {"stdout": text, "stderr": "", "rc": 255}}
    )

    assert found["labels"] == {
        "gpu.vendor": "NVIDIA", "gpu.count": "0", "gpu.health": "driver-error", "cpu.avx512": "false",
    }  # fmt: skip


async def test_a_card_the_driver_does_not_list_is_told(describe: Any, machines: Any) -> None:
    both = machines.bus(machines.nvidia("0000:17:00.0"), machines.nvidia("0000:27:00.0", None))

    found = await describe(**both, **machines.smi(machines.row(0)))

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.health"]) == ("1", "degraded")
    assert found["devices"][1]["health"]["reasons"] == ("no-driver: no kernel driver is bound",)


async def test_a_working_driver_without_any_tool_is_said_so(describe: Any, machines: Any) -> None:
    found = await describe(**machines.bus(machines.nvidia("0000:17:00.0")))

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.health"]) == ("0", "driver-error")
    assert "no-source" in found["problems"][0]


async def test_names_and_ids_in_brackets_are_unknown(describe: Any, machines: Any) -> None:
    rows = [machines.row(at, f"00000000:{at}7:00.0", name="[Unknown Error]", uuid="[Unknown Error]") for at in (1, 2)]

    found = await describe(**machines.smi(*rows))

    assert "gpu.product" not in found["labels"]
    assert len({device["uuid"] for device in found["devices"]}) == 2


@pytest.mark.parametrize("broken", ['{"card0": {"GFX Version": "gfx1100", "VRAM To', "", "[]", "null", "{"])
async def test_a_truncated_answer_falls_back_to_the_kernel(describe: Any, machines: Any, broken: str) -> None:
    files, links = machines.pci("0000:03:00.0", "1002", "744c", "030000", "amdgpu")
    device = "/sys/class/drm/card0/device"
    files |= {
        f"{device}/vendor": "0x1002\n", f"{device}/uevent": "PCI_SLOT_NAME=0000:03:00.0\n",
        f"{device}/mem_info_vram_total": "25753026560\n", f"{device}/mem_info_vram_used": "0\n",
    }  # fmt: skip

    found = await describe(files=files, links=links, **{"rocm-smi": {"stdout": broken, "stderr": "", "rc": 0}})

    assert (found["labels"]["gpu.vram"], found["labels"]["gpu.arch"]) == ("24Gi", "gfx1100")
    assert found["annotations"]["gpu-free-memory"] == "24560"
    assert "gpu.util" not in found["annotations"]


async def test_amd_smi_seven_wraps_its_list(describe: Any) -> None:
    static = """{"gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI355X",
        "target_graphics_version": "gfx950"}, "bus": {"bdf": "0000:05:00.0"},
        "vram": {"size": {"value": 294896, "unit": "MB"}}}]}"""
    metric = """{"gpu_data": [{"gpu": 0, "usage": {"gfx_activity": {"value": 65535, "unit": "%"}},
        "mem_usage": {"free_vram": {"value": 294000, "unit": "MB"}}}]}"""

    found = await describe(
        **{"amd-smi static": {"stdout": static, "rc": 0}, "amd-smi metric": {"stdout": metric, "rc": 0}}
    )

    assert (found["labels"]["gpu.arch"], found["labels"]["gpu.vram"]) == ("gfx950", "288Gi")
    assert "gpu.util" not in found["annotations"]
    assert found["annotations"]["gpu-free-memory"] == "294000"


async def test_a_processors_graphics_count_only_without_a_usable_card(describe: Any, machines: Any) -> None:
    apu = machines.card(
        **{"GFX Version": "gfx1151", "VRAM Total Memory (B)": str(96 << 30), "Card Series": "Radeon 8060S"}
    )

    alone = await describe(**machines.rocm(apu))
    beside = await describe(**machines.rocm(apu), **machines.smi(machines.row(0)))

    assert (alone["labels"]["gpu.count"], alone["labels"]["gpu.vram"]) == ("1", "96Gi")
    assert (beside["labels"]["gpu.vendor"], beside["labels"]["gpu.count"]) == ("NVIDIA", "1")


async def test_mi300a_counts_with_its_own_memory(describe: Any, machines: Any) -> None:
    apu = machines.card(
        **{"GFX Version": "gfx942", "VRAM Total Memory (B)": str(128 << 30), "Card Series": "AMD Instinct MI300A"}
    )

    found = await describe(**machines.rocm(apu, apu))

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.vram"]) == ("2", "128Gi")
    assert found["labels"]["gpu.memory-type"] == "unified"


async def test_partitions_told_as_functions_share_one_memory(describe: Any, machines: Any) -> None:
    files, links = machines.pci("0000:05:00.0", "1002", "74a1", "120000", "amdgpu")
    devices = [
        {
            "bdf": f"0000:05:00.{part}",
            "asic": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
            "vram_info": {"vram_size": 196592},
            "vram_usage": {"vram_total": 196592, "vram_used": 592},
            "activity": {},
            "power": {},
        }
        for part in range(8)
    ]

    found = await describe(
        files=files, links=links, python={"amdsmi": {"import": "ok", "init": "ok", "devices": devices}}
    )

    assert (found["labels"]["gpu.count"], found["labels"]["gpu.vram"]) == ("8", "24Gi")
    assert found["annotations"]["gpu-free-memory"] == "196000"
    assert len({device["uuid"] for device in found["devices"]}) == 8


@pytest.mark.parametrize(
    ("device", "address", "counted"),
    [("56c0", "0000:3a:00.0", "1"), ("0bd5", "0000:29:00.0", "1"), ("b080", "0000:00:02.0", "0"),
     ("a7a0", "0000:00:02.0", "0"), ("b081", "0000:03:00.0", "0")],
)  # fmt: skip
async def test_only_intel_boards_count(describe: Any, machines: Any, device: str, address: str, counted: str) -> None:
    found = await describe(**machines.bus(machines.pci(address, "8086", device, "038000", "xe")))

    assert found["labels"]["gpu.count"] == counted
    assert found["labels"].get("gpu.vendor") == ("INTEL" if counted == "1" else None)


async def test_old_intel_memory_is_per_tile(describe: Any, machines: Any) -> None:
    files, links = machines.pci("0000:29:00.0", "8086", "0bd5", "038000", "i915")
    base = "/sys/class/drm/card1"
    files |= {
        f"{base}/device/vendor": "0x8086\n", f"{base}/device/device": "0x0bd5\n",
        f"{base}/device/uevent": "PCI_SLOT_NAME=0000:29:00.0\n", f"{base}/lmem_total_bytes": f"{64 << 30}\n",
        f"{base}/gt/gt0/id": "0\n", f"{base}/gt/gt1/id": "1\n",
    }  # fmt: skip

    found = await describe(files=files, links=links)

    assert found["labels"]["gpu.vram"] == "128Gi"


@pytest.mark.parametrize("driver", [None, "vfio-pci", "nouveau"])
async def test_an_intel_board_without_its_driver_does_not_count(describe: Any, machines: Any, driver: Any) -> None:
    found = await describe(**machines.bus(machines.pci("0000:03:00.0", "8086", "56a0", "030000", driver)))

    assert found["labels"]["gpu.vendor"] == "INTEL"
    assert found["labels"]["gpu.count"] == "0"
    assert found["labels"]["gpu.health"] == ("passthrough" if driver == "vfio-pci" else "driver-error")


async def test_a_half_mounted_sysfs_is_no_error(describe: Any) -> None:
    found = await describe(
        files={
            "/sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n",
            "/sys/bus/pci/devices/0000:04:00.0/class": "0x030000\n",
            "/sys/class/drm/card0/device/vendor": "0x1002\n",
            "/sys/class/kfd/kfd/topology/nodes/1/gpu_id": "4711\n",
            "/sys/class/kfd/kfd/topology/nodes/x/gpu_id": "1\n",
        }
    )

    assert found["labels"]["gpu.count"] in {"0", "1"}


async def test_arm_has_no_avx512(describe: Any) -> None:
    found = await describe(files={"/proc/cpuinfo": "processor: 0\nFeatures\t: fp asimd avx512f_like\n"})

    assert found["labels"]["cpu.avx512"] == "false"


def calls(replayed: Any, program: str) -> int:
    return sum(1 for call in replayed.tools.calls if program in call)


async def probes(replayed: Any, minutes: int) -> None:
    """Probes each 30 seconds and samples between them, as the agent's loop does."""
    for _ in range(minutes * 2):
        for source in replayed.sources:
            await source.find()
        replayed.clock.at += 15
        for source in replayed.sources:
            if source.period is not None:
                assert await source.sample()
        replayed.clock.at += 15


async def test_a_tool_is_called_once_per_quarter_minute_at_most(replay_of: Any, machines: Any) -> None:
    replayed = replay_of(machines.case(**machines.smi(machines.row(0))))
    replayed.use_hand_clock()

    await probes(replayed, 5)

    assert calls(replayed, "nvidia-smi") == 21  # the first answer is asked for more fields once


async def test_expensive_tools_are_asked_when_the_kernel_has_news(replay_of: Any, machines: Any) -> None:
    files, links = machines.pci("0000:03:00.0", "1002", "744c", "030000", "amdgpu")
    device = "/sys/class/drm/card0/device"
    files |= {
        f"{device}/vendor": "0x1002\n", f"{device}/uevent": "PCI_SLOT_NAME=0000:03:00.0\n",
        f"{device}/mem_info_vram_total": "25753026560\n", f"{device}/mem_info_vram_used": "0\n",
        f"{device}/gpu_busy_percent": "5\n",
    }  # fmt: skip
    replayed = replay_of(machines.case(files=files, links=links, **machines.rocm(machines.card())))
    replayed.use_hand_clock()
    amd = replayed.sources[1]

    await probes(replayed, 9)
    once = calls(replayed, "rocm-smi")
    replayed.node.files[f"{device}/gpu_busy_percent"] = "77\n"
    live = await amd.sample()
    found = await amd.find()
    await probes(replayed, 2)

    assert once == 2
    assert [figures.util_percent for figures in live.values()] == [77.0]
    assert found.units[0].live.util_percent == 77.0
    assert found.units[0].source == "rocm-smi"
    assert calls(replayed, "rocm-smi") == 4
    replayed.node.files[f"{device}/current_compute_partition"] = "CPX\n"
    await amd.find()
    assert calls(replayed, "rocm-smi") == 6


async def test_without_sysfs_the_amd_tool_is_asked_for_figures_only(replay_of: Any, machines: Any) -> None:
    replayed = replay_of(machines.case(**machines.rocm(machines.card(), machines.card())))
    replayed.use_hand_clock()

    await probes(replayed, 5)

    assert calls(replayed, "rocm-smi") == 2 + 19
    assert calls(replayed, "rocminfo") == 1
