"""All vendors' sources over one machine's files and tools."""

from pathlib import Path

from flexinfer.adapters.gpu.amd import AmdSource
from flexinfer.adapters.gpu.amdsmi import AmdSmi
from flexinfer.adapters.gpu.intel import IntelSource
from flexinfer.adapters.gpu.machine import Machine
from flexinfer.adapters.gpu.nvidia import NvidiaSource
from flexinfer.adapters.gpu.nvml import Nvml
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.adapters.gpu.tools import SubprocessTools
from flexinfer.ports import Clock, HardwareSource, HostFiles


def sources(files: HostFiles, machine: Machine, root: Path, host_root: str, clock: Clock) -> tuple[HardwareSource, ...]:
    """NVIDIA, AMD and Intel. Tools come from PATH; installed ones outside it only on the machine itself."""
    tools = SubprocessTools()
    kernel = Kernel(files, host_root)
    own = root == Path("/")
    return (
        NvidiaSource(tools, kernel, Nvml(), clock, machine.memory, direct_paths=own),
        AmdSource(tools, kernel, AmdSmi(), clock, machine.memory, direct_paths=own),
        IntelSource(tools, kernel, clock),
    )
