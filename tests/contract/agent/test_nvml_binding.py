"""NVML through a binding that fails the way real ones do: per field, per device, at the start, and for ever."""

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from flexinfer.adapters.gpu import nvml as adapter
from flexinfer.adapters.gpu.nvml import Nvml
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.nvidia import units

NO_MEMORY = Memory()


class Binding:
    """Stands for the pynvml module. ``devices`` are dictionaries of function name → value or error name."""

    def __init__(self, devices: list[Any], init: list[str] | None = None) -> None:
        self.devices = devices
        self.init = init or []
        self.starts = 0
        self.driver = "575.57.08"
        self.NVMLError = type("NVMLError", (Exception,), {})

    def error(self, name: str) -> Exception:
        if name == "UnicodeDecodeError":
            return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return type(f"NVMLError_{name}", (self.NVMLError,), {})()

    def nvmlInit(self) -> None:
        self.starts += 1
        if self.init:
            name = self.init.pop(0)
            if name != "ok":
                raise self.error(name)

    def nvmlShutdown(self) -> None:
        return

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if isinstance(self.devices[index], str):
            raise self.error(self.devices[index])
        return self.devices[index]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def ask(handle: dict[str, Any], *args: Any) -> Any:
            value = handle.get(name, "FunctionNotFound")
            if isinstance(value, str) and value[:1].isupper():
                raise self.error(value)
            return value[args[0]] if name.endswith("MigDeviceHandleByIndex") else value

        return ask


def device(at: int = 0, **answers: Any) -> dict[str, Any]:
    """A healthy RTX 4090."""
    return {
        "nvmlDeviceGetUUID": f"gpu-uuid-{at}",
        "nvmlDeviceGetName": b"nvidia geforce rtx 4090",
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=f"00000000:{at}7:00.0".encode()),
        "nvmlDeviceGetCudaComputeCapability": (8, 9),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24564 << 20, used=564 << 20, free=24000 << 20),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37, memory=5),
        "nvmlDeviceGetTemperature": 52,
        "nvmlDeviceGetPowerUsage": 118440,
        "nvmlDeviceGetClockInfo": 2520,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x44,
        "nvmlDeviceGetTotalEccErrors": 0,
    } | {f"nvmlDeviceGet{name}": value for name, value in answers.items()}


async def read(binding: Binding, **options: Any) -> Any:
    return await Nvml(load=lambda: binding).read(**options)


async def test_everything_a_driver_tells() -> None:
    readings, attempt = await read(Binding([device()]))

    unit = units(readings, "nvml", NO_MEMORY, ())[0]
    assert attempt.outcome == "ok"
    assert (unit.product, unit.arch, unit.pci, unit.memory_mib) == (
        "nvidia geforce rtx 4090", "sm_89", "0000:07:00.0", 24564,
    )  # fmt: skip
    assert (unit.live.util_percent, unit.live.memory_free_mib, unit.live.power_watts) == (37, 24000, 118.44)
    assert unit.live.throttle == ("sw-power-cap", "hw-thermal")
    assert (unit.live.sm_clock_mhz, unit.live.ecc_uncorrected, unit.driver) == (2520, 0, "575.57.08")


@pytest.mark.parametrize("error", ["NotSupported", "Unknown", "NoPermission", "UnicodeDecodeError"])
@pytest.mark.parametrize("field", ["Name", "UtilizationRates", "Temperature", "PowerUsage", "PciInfo"])
async def test_a_failing_field_is_unknown_and_nothing_else(field: str, error: str) -> None:
    readings, _ = await read(Binding([device(**{field: error})]))

    unit = units(readings, "nvml", NO_MEMORY, ())[0]
    told = {
        "Name": unit.product, "UtilizationRates": unit.live.util_percent, "Temperature": unit.live.temperature_celsius,
        "PowerUsage": unit.live.power_watts, "PciInfo": unit.pci,
    }  # fmt: skip
    assert [name for name, value in told.items() if value is None] == [field]
    assert unit.usable


async def test_a_lost_device_does_not_hide_the_others() -> None:
    readings, attempt = await read(Binding([device(0), "GpuIsLost", device(2)]))

    assert attempt.outcome == "ok"
    assert [(reading.index, reading.condition) for reading in readings] == [(0, ""), (1, "lost"), (2, "")]


async def test_memory_that_is_not_supported_is_the_systems_on_a_chip_that_shares_it() -> None:
    chip = device(Name="nvidia gb10", CudaComputeCapability=(12, 1), MemoryInfo="NotSupported")
    readings, _ = await read(Binding([chip]))

    unit = units(readings, "nvml", Memory(124610, 100000), ())[0]

    assert (unit.memory_mib, unit.memory_type, unit.live.memory_free_mib) == (124610, "unified", 100000)


async def test_instances_have_exact_memory() -> None:
    instance = {
        "nvmlDeviceGetUUID": "mig-1",
        "nvmlDeviceGetName": "nvidia h100 MIG 3g.40gb",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40192 << 20, used=0, free=40000 << 20),
    }
    parent = device(
        MigMode=[1, 1], MaxMigDeviceCount=2, MigDeviceHandleByIndex=[instance, None], UtilizationRates="NotSupported"
    )
    readings, _ = await read(Binding([parent]))

    whole, part = units(readings, "nvml", NO_MEMORY, ())

    assert (whole.role, part.role) == ("parent", "part")
    assert (part.memory_mib, part.live.memory_free_mib) == (40192, 40000)
    assert part.partition
    assert (part.partition.profile, part.partition.parent) == ("3g.40gb", whole.uuid)


@pytest.mark.parametrize(
    ("error", "reason"),
    [("DriverNotLoaded", "driver-not-loaded"), ("LibRmVersionMismatch", "version-mismatch"),
     ("Unknown", "nvml-unknown"), ("NoPermission", "no-permission"), ("OperatingSystem", "operating-system")],
)  # fmt: skip
async def test_a_failing_start_names_its_reason(error: str, reason: str) -> None:
    readings, attempt = await read(Binding([device()], init=[error]))

    assert (list(readings), attempt.outcome, attempt.reason) == ([], "failed", reason)


async def test_a_missing_library_is_no_failure() -> None:
    _, attempt = await read(Binding([], init=["LibraryNotFound"]))

    assert (attempt.outcome, attempt.reason) == ("absent", "library-not-found")


async def test_the_library_is_started_again_after_a_device_was_lost() -> None:
    binding = Binding(["GpuIsLost"])
    nvml = Nvml(load=lambda: binding)
    await nvml.read()
    binding.devices = [device()]

    readings, _ = await nvml.read()

    assert binding.starts == 2
    assert not readings[0].condition


async def test_a_replaced_driver_starts_the_library_again() -> None:
    binding = Binding([device()])
    nvml = Nvml(load=lambda: binding)
    await nvml.read()
    binding.driver = "580.10"

    readings, _ = await nvml.read()

    assert binding.starts == 2
    assert readings[0].driver == "580.10"


async def test_facts_are_kept_between_probes_and_figures_are_not() -> None:
    binding = Binding([device()])
    nvml = Nvml(load=lambda: binding)
    await nvml.read()
    binding.devices[0]["nvmlDeviceGetName"] = "another"
    binding.devices[0]["nvmlDeviceGetUtilizationRates"] = SimpleNamespace(gpu=99)

    readings, _ = await nvml.read(live_only=True)

    assert readings[0].name == "nvidia geforce rtx 4090"
    assert readings[0].live.util_percent == 99


async def test_the_last_critical_error_of_a_device_is_told() -> None:
    binding = Binding([device(Index=0)])
    events: Iterator[Any] = iter([SimpleNamespace(device=binding.devices[0], eventData=79)])

    def wait(_set: Any, _timeout: int) -> Any:
        event = next(events, None)
        if event is None:
            raise binding.error("Timeout")
        return event

    binding.nvmlEventTypeXidCriticalError = 8
    binding.nvmlEventSetCreate = object
    binding.nvmlDeviceRegisterEvents = lambda *_: None
    binding.nvmlEventSetWait_v2 = wait
    nvml = Nvml(load=lambda: binding)
    await nvml.read()

    readings, _ = await nvml.read()

    assert readings[0].live.xid_last == 79
    assert readings[0].warnings == ("xid-79",)


async def test_a_hanging_library_is_given_up_and_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "INIT_SECONDS", 0.05)
    release, calls = threading.Event(), []
    binding = Binding([device()])

    def hang() -> None:
        calls.append(1)
        release.wait(10)

    binding.nvmlInit = hang
    nvml = Nvml(load=lambda: binding)

    outcomes = [(await nvml.read())[1].outcome for _ in range(3)]
    release.set()

    assert outcomes == ["timeout"] * 3
    assert len(calls) == 1


async def test_a_binding_that_is_not_installed_is_tried_once() -> None:
    loads = []

    def load() -> Any:
        loads.append(1)
        raise ModuleNotFoundError("No module named 'pynvml'")

    nvml = Nvml(load=load)
    found = await asyncio.gather(nvml.read())
    found += [await nvml.read()]

    assert [attempt.reason for _, attempt in found] == ["not-installed", "not-installed"]
    assert len(loads) == 1
