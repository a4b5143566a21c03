"""``flexinfer-global-proxy``: one OpenAI-compatible URL over several clusters."""

import logging
import ssl
from contextlib import AsyncExitStack

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.web.global_proxy import figures
from flexinfer.adapters.web.global_proxy.checks import Checks
from flexinfer.adapters.web.global_proxy.service import GlobalService
from flexinfer.adapters.web.proxy.connections import Connections
from flexinfer.adapters.web.proxy.limits import ServerLimits, UpstreamLimits
from flexinfer.adapters.web.proxy.listener import Listener, raise_file_limit
from flexinfer.adapters.web.serve import listen
from flexinfer.config.proxy import GlobalProxySettings
from flexinfer.contracts.events import ClusterHeadroom
from flexinfer.core.routing import federation
from flexinfer.core.routing.clusters import Clusters
from flexinfer.ports import Bus, BusFact, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import fail, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.taping import Tape
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)


class GlobalProxy:
    """One global proxy; without a bus it knows the clusters of its flags only."""

    def __init__(self, settings: GlobalProxySettings, bus: Bus | None) -> None:
        self._settings = settings
        self._bus = bus
        self._clock = SystemClock()
        self._tasks = Supervisor("global proxy")
        self.clusters = Clusters(settings.strategy, {c.name: c for c in settings.static_clusters()})
        self.connections = Connections(
            UpstreamLimits(
                connect_seconds=settings.connect_timeout,
                first_byte_seconds=settings.first_byte_timeout,
                idle_seconds=settings.idle_timeout,
            ),
            ssl.create_default_context(cafile=str(settings.clusters_ca)) if settings.clusters_ca else None,
        )
        key = settings.check_key_file.read_text().strip() if settings.check_key_file else ""
        self.checks = Checks(self.clusters, self.connections, self._clock, period=settings.health_interval, key=key)
        self.readiness = Readiness()
        self.readiness.require("clusters", self._some_cluster)
        service = GlobalService(self.clusters, self.connections, self.checks, self._clock, self.readiness.report)
        self.listener = Listener(
            service.handle, self._tasks, ServerLimits(body_bytes=settings.max_body), service.refused
        )
        self.port = 0

    def _some_cluster(self) -> str | None:
        up = any(cluster.health.up and cluster.models is not None for cluster in self.clusters.members.values())
        return None if up else "no cluster has answered yet"

    async def start(self) -> "GlobalProxy":
        """Listen. Raises adapters.web.serve.PortBusy."""
        sock = listen(self._settings.host, self._settings.port)
        self.port = int(sock.getsockname()[1])
        await self.listener.start(sock)
        self._tasks.forever("cluster checks", self.checks.run)
        self._tasks.once("cluster time limits", self.connections.sweep())
        if self._bus is not None:
            self._tasks.once("follow headroom", self._follow(self._bus))
        return self

    async def _follow(self, bus: Bus) -> None:
        await bus.follow((ClusterHeadroom,), self._heard)

    def _heard(self, fact: BusFact) -> None:
        if isinstance(fact, Snapshot):
            return
        try:
            fresh = federation.take_headroom(self.clusters, fact, self._clock.now())
        except ValueError as err:
            figures.REJECTED.inc()
            log.warning("headroom of %s is not taken: %s", fact.subject[:80], err)
            return
        if fresh is not None:
            log.info("cluster %s made itself known at %s", fresh.name, fresh.urls[0])
            self._tasks.once("first check", self.checks.one(fresh))

    async def stop(self) -> None:
        """Finish what is in flight within the drain timeout, then end."""
        self.readiness.draining = True
        await self.listener.drain(self._settings.drain_timeout, self._settings.accept_timeout)
        await self._tasks.close()
        self.connections.close()


async def run(settings: GlobalProxySettings) -> int:
    """Serve until SIGTERM; the exit code."""
    if not settings.clusters and not settings.nats_url:
        return fail("flexinfer-global-proxy: name clusters with --clusters name=url, or a bus with --nats-url", 2)
    raise_file_limit()
    async with AsyncExitStack() as stack:
        bus = await _bus(settings, stack)
        stop = stop_signals()
        proxy = await GlobalProxy(settings, bus).start()
        log.info("global proxy listens on port %d", proxy.port)
        await stop.wait()
        log.info("global proxy drains")
        await proxy.stop()
    return 0


async def _bus(settings: GlobalProxySettings, stack: AsyncExitStack) -> Bus | None:
    clock = SystemClock()
    tape = Tape.open(settings, "global-proxy", host_name(), clock.now, stack)
    if not settings.nats_url:
        return None
    bus = await NatsBus.of(settings, "flexinfer-global-proxy", clock, cluster="*")
    stack.push_async_callback(bus.close)
    return tape.bus(bus)
