"""A machine replayed from a case: its files, its tools and its vendor bindings, without leaving the process."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flexinfer.adapters.gpu.amd import AmdSource
from flexinfer.adapters.gpu.amdsmi import AmdSmi
from flexinfer.adapters.gpu.intel import IntelSource
from flexinfer.adapters.gpu.machine import Machine
from flexinfer.adapters.gpu.nvidia import NvidiaSource
from flexinfer.adapters.gpu.nvml import Nvml
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.adapters.gpu.tools import clean_environment
from flexinfer.core.hardware.report import document
from flexinfer.ports import ToolResult
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.probing import Prober
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor

CASES = Path(__file__).resolve().parents[2] / "captures" / "gpu"


def _load(name: str, path: Path) -> ModuleType:
    """A module of the tests, which are no packages."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


player: Any = _load("flexinfer_gpu_player", CASES / "player.py")


class CaseTools:
    """ports.Tools over a case. Keeps what was run and with which environment."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.environment = clean_environment(node.inputs.get("env", {}))
        self.calls: list[tuple[str, ...]] = []

    async def run(self, argv: Sequence[str], timeout: float = 10.0) -> ToolResult:  # noqa: ASYNC109 - as in ports.Tools
        self.calls.append(tuple(argv))
        found = self.node.run(list(argv), env=self.environment)
        return ToolResult(
            found.stdout.encode(), found.stderr.encode(), found.rc, found=found.found, timed_out=found.timeout
        )


class CaseFiles:
    """ports.HostFiles over a case."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def read(self, path: str, limit: int = 1 << 20) -> bytes | None:
        text = self.node.files.get(path)
        return None if text is None else text.encode()[:limit]

    def listdir(self, path: str) -> tuple[str, ...]:
        return self.node.names_in(path)

    def readlink(self, path: str) -> str | None:
        return self.node.links.get(path)


class HandClock:
    """A clock moved by the test."""

    at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Replay:
    """One machine with the agent's sources on it."""

    def __init__(self, case: dict[str, Any], *, files: Any = None, tools: Any = None) -> None:
        self.case = case
        self.node = player.FakeNode(case)
        self.tools = tools or CaseTools(self.node)
        files = files or CaseFiles(self.node)
        self.kernel = Kernel(files, "/host")
        self.machine = Machine(files)
        self.clock: Any = SystemClock()
        python = case["inputs"].get("python") or {}
        self.sources: tuple[Any, ...] = (
            NvidiaSource(
                self.tools, self.kernel, Nvml(load=lambda: stub_pynvml(python.get("pynvml") or {})), self.clock,
                self.machine.memory, direct_paths=False,
            ),
            AmdSource(
                self.tools, self.kernel, AmdSmi(load=lambda: stub_amdsmi(python.get("amdsmi") or {})), self.clock,
                self.machine.memory, direct_paths=False,
            ),
            IntelSource(self.tools, self.kernel, self.clock),
        )  # fmt: skip
        self.board = Board(Station("node", "flexinfer.ai/", "test", 30.0, 2.0), self.machine.cpu())
        self.prober = Prober(self.board, self.sources, self.clock)

    def use_hand_clock(self) -> None:
        """Time stands still unless the test moves ``clock.at``."""
        self.clock = HandClock()
        for source in self.sources:
            source.clock = self.clock

    async def document(self) -> dict[str, Any]:
        """What ``--once --output json`` would print."""
        tasks = Supervisor("replay")
        await self.prober.once(tasks)
        await tasks.close()
        assert self.board.inventory is not None
        return document(
            self.board.inventory, self.board.labels, self.board.annotations(self.board.figures), self.prober.attempts
        )


def stub_pynvml(scenario: dict[str, Any]) -> Any:
    """A binding that fails to start the way the scenario says."""
    errors: dict[str, type[Exception]] = {}

    class NVMLError(Exception):
        pass

    def error(name: str) -> type[Exception]:
        return errors.setdefault(name, type(name, (NVMLError,), {}))

    def init() -> None:
        name = scenario.get("nvmlInit", "NVMLError_LibraryNotFound")
        if name != "ok":
            raise error(name)

    def shutdown() -> None:
        raise error("NVMLError_Uninitialized")

    return SimpleNamespace(NVMLError=NVMLError, nvmlInit=init, nvmlShutdown=shutdown)


def stub_amdsmi(scenario: dict[str, Any]) -> Any:
    """A binding with the devices of the scenario, or one that fails to load."""
    if scenario.get("import", "KeyError") != "ok":
        sys.stdout.write(scenario.get("stdout", ""))
        raise {"KeyError": KeyError, "OSError": OSError, "AttributeError": AttributeError}[
            scenario.get("import", "KeyError")
        ]("libamd_smi.so")

    class AmdSmiException(Exception):
        pass

    class AmdSmiLibraryException(AmdSmiException):
        err_code = 34

    def init() -> None:
        if scenario.get("init", "ok") != "ok":
            raise AmdSmiLibraryException(scenario["init"])

    def part(name: str) -> Any:
        def ask(handle: dict[str, Any]) -> Any:
            if name not in handle:
                raise AmdSmiLibraryException(name)
            return handle[name]

        return ask

    return SimpleNamespace(
        AmdSmiException=AmdSmiException,
        AmdSmiLibraryException=AmdSmiLibraryException,
        amdsmi_init=init,
        amdsmi_get_processor_handles=lambda: list(scenario.get("devices", ())),
        amdsmi_get_gpu_device_bdf=part("bdf"),
        amdsmi_get_gpu_asic_info=part("asic"),
        amdsmi_get_gpu_vram_info=part("vram_info"),
        amdsmi_get_gpu_vram_usage=part("vram_usage"),
        amdsmi_get_gpu_activity=part("activity"),
        amdsmi_get_power_info=part("power"),
        AmdSmiTemperatureType=SimpleNamespace(EDGE=0),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
        amdsmi_get_temp_metric=lambda handle, _type, _metric: handle["temp_edge"],
    )


def all_cases() -> list[dict[str, Any]]:
    """Every capture, in the order of its name."""
    return list(player.load(CASES))


def differences(case: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What the document says other than the case's right answer."""
    labels, annotations, prefix = found["labels"], found["annotations"], "flexinfer.ai/"
    wrong = [
        f"{name}: expected {want!r}, got {labels.get(prefix + name)!r}"
        for name, want in case["expected"].items()
        if not player.matches(want, labels.get(prefix + name))
    ]
    telemetry = case["telemetry"]
    told = {
        "gpu.util": annotations.get(prefix + "gpu.util"),
        "gpu-free-memory": annotations.get(prefix + "gpu-free-memory"),
        "health": labels.get(prefix + "gpu.health"),
        "memory_type": labels.get(prefix + "gpu.memory-type"),
    }
    wrong += [
        f"{name}: expected {telemetry[name]!r}, got {got!r}"
        for name, got in told.items()
        if name in telemetry and not player.matches(telemetry[name], got)
    ]
    return wrong + _device_differences(telemetry, found["devices"])


def _device_differences(telemetry: dict[str, Any], devices: list[dict[str, Any]]) -> list[str]:
    by_index = {device["index"]: device["telemetry"] for device in devices}
    wrong = [
        f"device {want['index']}: {name} should be {want[name]}"
        for want in telemetry.get("gpus", ())
        for name, key in (("temp_c", "temperatureCelsius"), ("power_w", "powerWatts"))
        if name in want and by_index[want["index"]][key] != want[name]
    ]
    kinds = {(device["partition"] or {}).get("kind") for device in devices}
    expected = {kind for kind in ("mig", "vgpu") if telemetry.get(kind)} | {telemetry.get("partition")} - {None}
    wrong += [f"no {kind} partition" for kind in expected - kinds]
    wrong += [f"{v} is not mentioned" for v in {*telemetry.get("other_vendors", ())} - {d["vendor"] for d in devices}]
    unusable = {device["pci"] for device in devices if not device["counted"]}
    for place in (*telemetry.get("lost", ()), *telemetry.get("reset_required", ())):
        if place[-12:] not in unusable:
            wrong.append(f"{place} is not shown as unusable")
    reasons = " ".join(text for device in devices for text in device["health"]["reasons"])
    if telemetry.get("reason", "") not in reasons:
        wrong.append(f"no device says {telemetry['reason']}")
    return wrong


@pytest.fixture(params=all_cases(), ids=lambda case: case["id"])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One capture."""
    return request.param


@pytest.fixture
def replay_of() -> type[Replay]:
    """Makes a replayed machine of a case."""
    return Replay


@pytest.fixture
def differences_of() -> Any:
    """Compares a document with a case's right answer."""
    return differences


@pytest.fixture(scope="session")
def machines() -> Any:
    """Builders of made-up machines."""
    return _load("flexinfer_machines", Path(__file__).with_name("machines.py"))


@pytest.fixture
def describe(machines: Any) -> Any:
    """The document of a made-up machine, labels without their prefix."""

    async def run(**inputs: Any) -> dict[str, Any]:
        found = await Replay(machines.case(**inputs)).document()
        for name in ("labels", "annotations"):
            found[name] = {key.removeprefix("flexinfer.ai/"): value for key, value in found[name].items()}
        return found

    return run
