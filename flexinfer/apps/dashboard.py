"""``flexinfer-dashboard``: follows everything on the bus and shows it."""

import logging

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.web.dashboard.app import Broadcast, dashboard_app
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.config.dashboard import DashboardSettings
from flexinfer.contracts.topics import TOPICS
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)


async def run(settings: DashboardSettings) -> int:
    """Serve until SIGTERM."""
    stop = stop_signals()
    clock = SystemClock()
    readiness = Readiness()
    board = Board()
    tasks = Supervisor("dashboard")
    bus = await NatsBus.start(
        settings.nats_url, name="dashboard", cluster=settings.cluster, credentials=settings.nats_credentials,
        ca=settings.nats_ca, clock=clock,
    )  # fmt: skip

    def notes() -> list[str]:
        return [] if bus.connected else ["The bus cannot be reached: what you see is the last known state."]

    readiness.require("bus", lambda: None if bus.connected else "the bus cannot be reached")
    broadcast = Broadcast(board, clock, notes)
    server = WebServer(
        dashboard_app(broadcast, readiness.report, settings.token), listen(settings.host, settings.port), drain=1
    )

    async def follow() -> None:
        await bus.follow(tuple(topic.data for topic in TOPICS.values()), board.sink)

    try:
        await server.start()
        log.info("dashboard on port %d", server.port)
        tasks.once("follow", follow())
        tasks.forever("batches", broadcast.run)
        await stop.wait()
    finally:
        readiness.draining = True
        await tasks.close()
        await server.stop()
        await bus.close()
    return 0
