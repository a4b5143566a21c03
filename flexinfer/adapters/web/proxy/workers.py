"""Several worker processes behind one port (SO_REUSEPORT): the parent holds the port, starts, restarts and stops them.

Each worker is a whole proxy with its own name on the bus, so load, demand and headroom add up there like those of
separate replicas. A worker ends when its standard input does: none outlives the parent, however that ends.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flexinfer.adapters.web.proxy.listener import Tasks
from flexinfer.adapters.web.serve import PortBusy

log = logging.getLogger(__name__)

_QUICK_SECONDS = 10.0


def socket_path(folder: Path, index: int) -> Path:
    """Where worker ``index`` answers its siblings."""
    return folder / f"worker-{index}.sock"


class Workers:
    """``program`` is the name in flexinfer.cli; ``environments`` are the settings of each worker."""

    def __init__(self, program: str, environments: Sequence[Mapping[str, str]], grace: float) -> None:
        self._program = program
        self._environments = environments
        self._grace = grace
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    def start(self, tasks: Tasks) -> None:
        """Start all and keep them running."""
        for index, environment in enumerate(self._environments):
            tasks.once(f"worker {index}", self._keep(index, environment))

    async def _keep(self, index: int, environment: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        pause = 0.2
        while not self._stopping.is_set():
            began = loop.time()
            process = self._processes[index] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                f"import sys; from flexinfer.cli import run_program; sys.exit(run_program({self._program!r}, []))",
                env={**os.environ, **environment},
                stdin=asyncio.subprocess.PIPE,
            )
            code = await process.wait()
            if self._stopping.is_set():
                return
            pause = 0.2 if loop.time() - began > _QUICK_SECONDS else min(10.0, pause * 2)
            log.error("worker %d ended with code %d and is started again in %.1f s", index, code, pause)
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """SIGTERM to all, so that they drain together; SIGKILL after the grace."""
        self._stopping.set()
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            process.terminate()
        try:
            async with asyncio.timeout(self._grace):
                await asyncio.gather(*(process.wait() for process in running))
        except TimeoutError:
            for process in running:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


def hold_port(host: str, port: int) -> socket.socket:
    """Bind without listening: keeps the port for the workers, who bind it too, and takes no connection itself.

    Raises adapters.web.serve.PortBusy.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError as err:
        sock.close()
        raise PortBusy(err.errno, f"cannot listen on {host}:{port}: {err.strerror}; choose another port") from err
    return sock


async def parent_gone() -> None:
    """In a worker: return when the parent closed our standard input, as its end does."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
