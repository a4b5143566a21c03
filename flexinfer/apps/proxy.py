"""``flexinfer-proxy``: one OpenAI-compatible URL for every model of this cluster."""

import logging

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.web.proxy.connections import Connections
from flexinfer.adapters.web.proxy.limits import ServerLimits, UpstreamLimits
from flexinfer.adapters.web.proxy.listener import Listener, raise_file_limit
from flexinfer.adapters.web.proxy.service import ProxyService
from flexinfer.adapters.web.proxy.signals import Signals
from flexinfer.adapters.web.proxy.waiting import WaitingRoom
from flexinfer.adapters.web.serve import listen
from flexinfer.config.proxy import ProxySettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.core.routing.directory import Directory
from flexinfer.ports import Bus
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

_ACCEPT_WHILE_DRAINING = 5.0


class Proxy:
    """One proxy over a bus; several can live in one process."""

    def __init__(self, settings: ProxySettings, bus: Bus) -> None:
        self._settings = settings
        self._bus = bus
        self._clock = SystemClock()
        self._tasks = Supervisor("proxy")
        self.directory = Directory()
        self.connections = Connections(upstream_limits(settings))
        mint = EventMint.start("proxy", settings.instance or host_name(), boot_id(), self._clock.now, settings.cluster)
        self.signals = Signals(bus, mint, self._clock, self.directory, self.url)
        self.room = WaitingRoom(self._clock, settings.queue_limit, settings.queue_timeout, self.signals.changed)
        self.readiness = Readiness()
        self.readiness.require("routing table", self._table)
        self.readiness.degraded = self._degraded
        self._service = ProxyService(self.directory, self.connections, self.room, self._clock, self.readiness.report)
        self.listener = Listener(
            self._service.handle, self._tasks, ServerLimits(body_bytes=settings.max_body), self._service.refused
        )
        self.port = 0

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
        sock = listen(self._settings.host, self._settings.port)
        self.port = int(sock.getsockname()[1])
        await self.listener.start(sock)
        self.signals.start(self._tasks, self.room, self._service.moved)
        self._tasks.once("engine time limits", self.connections.sweep())
        return self

    async def stop(self) -> None:
        """Finish what is in flight within the drain timeout, then end."""
        self.readiness.draining = True
        await self.listener.drain(self._settings.drain_timeout, _ACCEPT_WHILE_DRAINING)
        await self._tasks.close()
        self.connections.close()


def upstream_limits(settings: ProxySettings) -> UpstreamLimits:
    """The settings' times."""
    return UpstreamLimits(
        connect_seconds=settings.connect_timeout,
        first_byte_seconds=settings.first_byte_timeout,
        idle_seconds=settings.idle_timeout,
    )


async def run(settings: ProxySettings) -> int:
    """Serve until SIGTERM; the exit code."""
    raise_file_limit()
    bus = await NatsBus.start(
        settings.nats_url,
        name=f"flexinfer-proxy {settings.instance or host_name()}",
        cluster=settings.cluster,
        credentials=settings.nats_credentials,
        ca=settings.nats_ca,
        clock=SystemClock(),
    )
    stop = stop_signals()
    try:
        proxy = await Proxy(settings, bus).start()
        log.info("proxy listens on port %d", proxy.port)
        await stop.wait()
        log.info("proxy drains")
        await proxy.stop()
    finally:
        await bus.close()
    return 0
