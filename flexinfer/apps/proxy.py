"""``flexinfer-proxy``: one OpenAI-compatible URL for every model of this cluster."""

import asyncio
import logging
from collections.abc import Callable

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.web.proxy import gathering
from flexinfer.adapters.web.proxy.access import AccessLog
from flexinfer.adapters.web.proxy.connections import Connections
from flexinfer.adapters.web.proxy.keys import ApiKeys
from flexinfer.adapters.web.proxy.limits import ServerLimits, UpstreamLimits
from flexinfer.adapters.web.proxy.listener import Listener, raise_file_limit
from flexinfer.adapters.web.proxy.service import ProxyService
from flexinfer.adapters.web.proxy.signals import Signals
from flexinfer.adapters.web.proxy.waiting import WaitingRoom
from flexinfer.adapters.web.proxy.workers import serve_with_workers, stop_with_parent
from flexinfer.adapters.web.serve import listen
from flexinfer.config.proxy import ProxySettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.core.routing.directory import Directory
from flexinfer.ports import Bus
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.parts import journal_for
from flexinfer.runtime.process import boot_id, fail, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)


class Proxy:
    """One proxy over a bus; several can live in one process."""

    def __init__(self, settings: ProxySettings, bus: Bus) -> None:
        """Raises OSError or ValueError if the API keys or the journal cannot be opened."""
        self._settings = settings
        self._clock = SystemClock()
        self._tasks = Supervisor("proxy")
        self.port = 0
        name = settings.instance or host_name()
        self._keys = ApiKeys(settings.api_keys_file) if settings.api_keys_file else None
        self._journal = journal_for(settings, "proxy", name, self._clock.now())
        self._sibling_server: asyncio.Server | None = None
        self.directory = Directory()
        self.connections = Connections(
            UpstreamLimits(
                connect_seconds=settings.connect_timeout,
                first_byte_seconds=settings.first_byte_timeout,
                idle_seconds=settings.idle_timeout,
            )
        )
        mint = EventMint.start("proxy", name, boot_id(), self._clock.now, settings.cluster)
        record = self._journal.write if self._journal else None
        self.signals = Signals(bus, mint, self._clock, self.directory, self.url, record)
        self.room = WaitingRoom(self._clock, settings.queue_limit, settings.queue_timeout, self.signals.changed)
        self.readiness = Readiness()
        self.readiness.require("routing table", self._table)
        self.readiness.degraded = self._degraded
        self._service = ProxyService(
            self.directory,
            self.connections,
            self.room,
            self._clock,
            self.readiness.report,
            access=AccessLog(name, settings.access_log_rate, self.signals.publish_soon),
            keys=self._keys,
            expose=self._of_all_workers if settings.worker_folder else None,
            clients=lambda: self.listener.connections,
        )
        limits = ServerLimits(
            body_bytes=settings.max_body, head_seconds=settings.header_timeout, buffered_bytes=settings.max_buffered
        )
        self.listener = Listener(self._service.handle, self._tasks, limits, self._service.refused)

    async def _of_all_workers(self, own: Callable[[], bytes]) -> bytes:
        settings = self._settings
        if settings.worker_folder is None:
            return own()
        others = await gathering.siblings(settings.worker_folder, settings.worker_index, settings.workers)
        return gathering.merge([own(), *others])

    def _table(self) -> str | None:
        return None if self.directory.warm else "no snapshot from the bus yet"

    def _degraded(self) -> str | None:
        return None if self.signals.synced else "the bus is away; routing by the last table"

    def url(self) -> str:
        """Where other proxies reach this one."""
        host = self._settings.host or host_name()
        return self._settings.advertise_url or f"http://{host}:{self.port}"

    async def start(self) -> "Proxy":
        """Listen. Raises adapters.web.serve.PortBusy."""
        settings = self._settings
        sock = listen(settings.host, settings.port, reuse_port=settings.worker_folder is not None)
        self.port = int(sock.getsockname()[1])
        await self.listener.start(sock)
        self.signals.start(self._tasks, self.room, self._service.moved)
        self._tasks.once("engine time limits", self.connections.sweep())
        if self._keys:
            self._tasks.forever("API keys", self._keys.watch)
        if settings.worker_folder:
            self._sibling_server = await gathering.tell_siblings(
                settings.worker_folder, settings.worker_index, self._service.own_metrics
            )
        return self

    async def stop(self) -> None:
        """Finish what is in flight within the drain timeout, then end."""
        self.readiness.draining = True
        await self.listener.drain(self._settings.drain_timeout, self._settings.accept_timeout)
        await self._tasks.close()
        self.connections.close()
        if self._sibling_server:
            self._sibling_server.close()
        if self._journal:
            self._journal.close()


async def run(settings: ProxySettings) -> int:
    """Serve until SIGTERM; the exit code."""
    if not settings.nats_url:
        return fail("flexinfer-proxy: name the bus with --nats-url or NATS_URL", 2)
    if settings.workers > 1 and settings.worker_folder is None:
        return await serve_with_workers(settings, host_name(), stop_signals(), Supervisor("workers"))
    raise_file_limit()
    bus = await NatsBus.of(settings, f"flexinfer-proxy {settings.instance or host_name()}", SystemClock())
    stop = stop_signals()
    tasks = Supervisor("process")
    try:
        proxy = await Proxy(settings, bus).start()
        log.info("proxy listens on port %d", proxy.port)
        if settings.worker_folder:
            tasks.once("parent", stop_with_parent(stop))
        await stop.wait()
        log.info("proxy drains")
        await proxy.stop()
    except ValueError as err:
        return fail(f"flexinfer-proxy: {err}", 2)
    finally:
        await tasks.close()
        await bus.close()
    return 0
