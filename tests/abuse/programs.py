"""The programs that listen, as processes with the limits they ship with."""

import asyncio
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.ports import free_port
from tests.abuse import raw

START_SECONDS = 120.0


@dataclass
class Running:
    """A process of ours; ``path`` takes a body."""

    name: str
    process: asyncio.subprocess.Process
    port: int
    path: str
    log: Path
    tls: ssl.SSLContext | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(START_SECONDS):
            return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls, limit=1 << 26)

    async def status(self, path: str = "/healthz") -> int:
        """Status of a GET on a new connection."""
        reader, writer = await self.connect()
        try:
            async with asyncio.timeout(START_SECONDS):
                writer.write(raw.get(path))
                return raw.statuses(await reader.readline())[0]
        finally:
            writer.transport.abort()

    def memory(self, what: str = "VmRSS") -> int:
        """Resident bytes now, or with ``VmHWM`` at most so far."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{what}:\s+(\d+) kB", text, re.MULTILINE)
        assert found
        return int(found[1]) << 10

    def said(self) -> str:
        return self.log.read_text(errors="replace")


async def started(
    program: str, folder: Path, *args: str, path: str, tls: ssl.SSLContext | None = None,
    environ: dict[str, str] | None = None,
) -> Running:  # fmt: skip
    """``program`` on a free port; ``name`` is what follows ``flexinfer-``."""
    port, log = free_port("127.0.0.1"), folder / f"{program}.log"
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c",
            f"import sys; from flexinfer.cli import run_program; sys.exit(run_program({program!r}))",
            "--host", "127.0.0.1", "--port", str(port), *args,
            stdout=out, stderr=out, stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environ or {})},
        )  # fmt: skip
    return Running(program.removeprefix("flexinfer-"), process, port, path, log, tls)


async def listening(one: Running) -> None:
    """Until it answers. Raises AssertionError with its log."""
    for _ in range(int(START_SECONDS / 0.05)):
        assert one.process.returncode is None, one.said()
        try:
            if await one.status() == 200:
                return
        except (OSError, IndexError):
            await asyncio.sleep(0.05)
    raise AssertionError(one.said())


def certificate(folder: Path) -> tuple[list[str], ssl.SSLContext]:
    """Flags of a server and the context of a client that trusts it."""
    ca = trustme.CA()
    own = ca.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    own.private_key_pem.write_to_path(folder / "tls.key")
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return ["--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")], context


@asynccontextmanager
async def all_programs(folder: Path) -> AsyncIterator[list[Running]]:
    """Extender, proxy, global proxy, dashboard and webhook; their bus is away."""
    bus = f"nats://127.0.0.1:{free_port('127.0.0.1')}"
    flags, context = certificate(folder)
    async with AsyncExitStack() as stack:
        api = await EmbeddedApi().start()
        stack.push_async_callback(api.stop)
        kubeconfig = str(api.write_kubeconfig(folder / "kubeconfig"))
        running = [
            await started("flexinfer-sched", folder, "--nats-url", bus, "--kubeconfig", kubeconfig,
                          "--max-body", "1048576", path="/filter"),
            await started("flexinfer-proxy", folder, "--nats-url", bus, "--max-body", "1048576",
                          path="/v1/chat/completions"),
            await started("flexinfer-global-proxy", folder, "--clusters", "a=http://127.0.0.1:9",
                          "--max-body", "1048576", path="/v1/chat/completions"),
            await started("flexinfer-dashboard", folder, "--nats-url", bus, path="/api/state"),
            await started("flexinfer-webhook", folder, "--metrics-port", "0", *flags, path="/validate", tls=context),
        ]  # fmt: skip
        for one in running:
            stack.push_async_callback(ended, one)
        await asyncio.gather(*(listening(one) for one in running))
        yield running


async def ended(one: Running) -> None:
    if one.process.returncode is None:
        one.process.kill()
    await one.process.wait()
