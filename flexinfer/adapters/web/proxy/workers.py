"""Several worker processes behind one port (SO_REUSEPORT): the parent holds the port, starts, restarts and stops them.

Each worker is a whole proxy with its own name on the bus, so load, demand and headroom add up there like those of
separate replicas. A worker ends when its standard input does: none outlives the parent, however that ends.
"""

import asyncio
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from flexinfer.adapters.web.proxy.listener import Tasks
from flexinfer.adapters.web.serve import PortBusy
from flexinfer.config.common import env_name
from flexinfer.config.proxy import ProxySettings

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


async def serve_with_workers(settings: ProxySettings, host_name: str, stop: asyncio.Event, tasks: Tasks) -> int:
    """Hold the port and keep the workers running until ``stop``; the exit code. Raises PortBusy."""
    sock = hold_port(settings.host, settings.port)
    port = int(sock.getsockname()[1])
    name = settings.instance or host_name
    url = settings.advertise_url or f"http://{settings.host or host_name}:{port}"
    shared = settings.model_copy(update={"port": port, "advertise_url": url})
    with tempfile.TemporaryDirectory(prefix="flexinfer-proxy-") as folder:
        own = [
            shared.model_copy(
                update={"worker_folder": Path(folder), "worker_index": index, "instance": f"{name}-{index}"}
            )
            for index in range(settings.workers)
        ]
        workers = Workers("flexinfer-proxy", [environment(each) for each in own], settings.drain_timeout + 5)
        workers.start(tasks)
        log.info("%d workers listen on port %d", settings.workers, port)
        await stop.wait()
        await workers.stop()
    sock.close()
    return 0


def environment(settings: ProxySettings) -> dict[str, str]:
    """The settings as environment variables, for another process of the same program."""
    fields = ProxySettings.model_fields
    values = settings.model_dump(mode="json")
    return {env_name(name, fields[name]): str(value) for name, value in values.items() if value is not None}


async def stop_with_parent(stop: asyncio.Event) -> None:
    """In a worker: stop when the parent closed our standard input, as its end does."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    stop.set()
