"""Command-line tools: a time limit, a clean environment, one call per tool at a time, and no trace left behind."""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from flexinfer.ports import ToolResult

log = logging.getLogger(__name__)

OUTPUT_BYTES = 4 << 20
REAP_SECONDS = 1.0

# They hide devices from the tools, change what the tools answer, or make a Python tool load our libraries.
_DROPPED = frozenset(
    {
        "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
        "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV",
        "LD_PRELOAD", "LANGUAGE", "COLUMNS",
    }
)  # fmt: skip


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment tools run in: C locale, and nothing that changes their answers."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _DROPPED and not name.startswith(("HSA_OVERRIDE_", "LC_", "NATS_", "KUBE"))
    }
    return kept | {"LC_ALL": "C", "LANG": "C"}


class SubprocessTools:
    """ports.Tools. A tool that cannot be killed (a driver call in D state) is not called again until it is gone."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = clean_environment(os.environ if environ is None else environ)
        self._stuck: dict[str, asyncio.subprocess.Process] = {}

    async def run(self, argv: Sequence[str], timeout: float = 10.0) -> ToolResult:  # noqa: ASYNC109 - mirrors ports.Tools
        """Output, exit code, and whether it was found or timed out; never raises for what the tool does."""
        name = " ".join(argv[:3]) if argv[0] == "chroot" else argv[0]
        if (held := self._stuck.get(name)) is not None:
            if held.returncode is None:
                return ToolResult(b"", b"the previous call has not ended", 124, timed_out=True)
            del self._stuck[name]
        program = shutil.which(argv[0], path=self._environ.get("PATH", os.defpath))
        if program is None:
            return ToolResult(b"", b"", 127, found=False)
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *argv[1:],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environ,
                cwd="/",
                start_new_session=True,
                limit=1 << 16,
            )
        except OSError as err:
            return ToolResult(b"", str(err).encode(), 126, found=not isinstance(err, FileNotFoundError))
        return await self._finish(name, process, timeout)

    async def _finish(self, name: str, process: asyncio.subprocess.Process, limit: float) -> ToolResult:
        assert process.stdout is not None  # noqa: S101 - asked for above
        assert process.stderr is not None  # noqa: S101 - asked for above
        out, err = bytearray(), bytearray()
        try:
            async with asyncio.timeout(limit):
                await asyncio.gather(_collect(process.stdout, out), _collect(process.stderr, err))
                code = await process.wait()
        except TimeoutError:
            await self._kill(name, process)
            return ToolResult(bytes(out), bytes(err), 124, timed_out=True)
        except BaseException:  # cancellation too: the child must not outlive its caller
            await self._kill(name, process)
            raise
        return ToolResult(bytes(out), bytes(err), code)

    async def _kill(self, name: str, process: asyncio.subprocess.Process) -> None:
        """End the whole group: tools are scripts that start others."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            async with asyncio.timeout(REAP_SECONDS):
                await process.wait()
        except TimeoutError:
            self._stuck[name] = process
            log.warning("%s cannot be killed and is not called again until it ends", name)


async def _collect(stream: asyncio.StreamReader, into: bytearray) -> None:
    """Read to the end; what exceeds the limit is read and dropped, so that the tool is not blocked by it."""
    while part := await stream.read(1 << 16):
        if len(into) < OUTPUT_BYTES:
            into += part[: OUTPUT_BYTES - len(into)]
