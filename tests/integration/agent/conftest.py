"""The agent as a process on a machine made of fake tools, fake files and stub bindings."""

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "captures" / "gpu"

STUB_PYNVML = """
class NVMLError(Exception):
    pass
def nvmlInit():
    raise type({name!r}, (NVMLError,), {{}})()
def nvmlShutdown():
    raise type("NVMLError_Uninitialized", (NVMLError,), {{}})()
"""

STUB_AMDSMI = """
import json, sys
scenario = json.loads({scenario!r})
if scenario.get("import", "KeyError") != "ok":
    sys.stdout.write(scenario.get("stdout", ""))
    kinds = {{"KeyError": KeyError, "OSError": OSError, "AttributeError": AttributeError}}
    raise kinds[scenario["import"]]("libamd_smi.so")
class AmdSmiException(Exception):
    pass
class AmdSmiLibraryException(AmdSmiException):
    err_code = 34
class AmdSmiTemperatureType:
    EDGE = 0
class AmdSmiTemperatureMetric:
    CURRENT = 0
def amdsmi_init():
    if scenario.get("init", "ok") != "ok":
        raise AmdSmiLibraryException(scenario["init"])
def amdsmi_get_processor_handles():
    return list(scenario.get("devices", ()))
def _part(name):
    def ask(handle, *kind):
        if name not in handle:
            raise AmdSmiLibraryException(name)
        return handle[name]
    return ask
amdsmi_get_gpu_device_bdf = _part("bdf")
amdsmi_get_gpu_asic_info = _part("asic")
amdsmi_get_gpu_vram_info = _part("vram_info")
amdsmi_get_gpu_vram_usage = _part("vram_usage")
amdsmi_get_gpu_activity = _part("activity")
amdsmi_get_power_info = _part("power")
amdsmi_get_temp_metric = _part("temp_edge")
"""


def load(name: str, path: Path) -> ModuleType:
    """A module from a file outside any package."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def player() -> ModuleType:
    """The player of the captures."""
    return load("flexinfer_gpu_player", CASES / "player.py")


@pytest.fixture(scope="session")
def answers() -> ModuleType:
    """Comparison of a document with a case's right answer."""
    return load("flexinfer_gpu_answers", ROOT / "tests" / "contract" / "agent" / "conftest.py")


def environment(case: dict[str, Any], bin_dir: Path, stubs: Path) -> dict[str, str]:
    """Tools from the case only, stub bindings first, and the variables that leaked into the agent in the field."""
    python = case["inputs"].get("python") or {}
    stubs.mkdir()
    (stubs / "pynvml.py").write_text(
        STUB_PYNVML.format(name=python.get("pynvml", {}).get("nvmlInit", "NVMLError_Unknown"))
    )
    (stubs / "amdsmi.py").write_text(
        STUB_AMDSMI.format(scenario=json.dumps(python.get("amdsmi", {"import": "KeyError"})))
    )
    return {"PATH": str(bin_dir), "PYTHONPATH": f"{stubs}:{ROOT}", **case["inputs"].get("env", {})}


@pytest.fixture
def agent_on(player: ModuleType) -> Any:
    """Runs the agent on the machine of a case: (exit code, stdout, stderr)."""

    async def run(case: dict[str, Any], folder: Path, *args: str) -> tuple[int, str, str]:
        bin_dir, root = player.materialize(case, folder)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from flexinfer.cli import agent; agent()",
            "--root",
            root,
            "--node-name",
            "replayed",
            *args,
            env=environment(case, bin_dir, folder / "stubs"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    return run
