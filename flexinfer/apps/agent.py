"""``flexinfer-agent``: what accelerators this node has, told to the bus and to the Node object.

Bus and API may each be away, at start or later: the agent goes on with what it can reach.
"""

import asyncio
import logging
import sys
from contextlib import AsyncExitStack

import msgspec
import yaml

from flexinfer import __version__
from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.gpu.files import RootedFiles
from flexinfer.adapters.gpu.machine import Machine
from flexinfer.adapters.gpu.sources import sources
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.credentials import KubeconfigError
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.web.ops import ops_app
from flexinfer.adapters.web.serve import PortBusy, WebServer, listen
from flexinfer.config.agent import AgentSettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.kubernetes import NODES
from flexinfer.core.hardware import notices
from flexinfer.core.hardware.notices import Notice
from flexinfer.core.hardware.report import document, table
from flexinfer.ports import Bus, HostFiles, KubeApi
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.noticing import Noticer
from flexinfer.runtime.agent.probing import Prober
from flexinfer.runtime.agent.projecting import Projector
from flexinfer.runtime.agent.telling import Teller
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

BIND_AGAIN_SECONDS = 30.0
OFFLINE_SECONDS = 2.0


async def run(settings: AgentSettings) -> int:
    """Until SIGTERM, or one probe with ``--once``; the exit code."""
    clock = SystemClock()
    files = RootedFiles(settings.root)
    machine = Machine(files)
    board = Board(_station(settings), machine.cpu())
    prober = Prober(board, sources(files, machine, settings.root, settings.host_root, clock), clock)
    async with AsyncExitStack() as stack:
        tasks = Supervisor("agent")
        bus = await _bus(settings, clock, stack)
        api = await _api(settings, stack)
        mint = EventMint.start("agent", board.station.node, boot_id(), clock.now, settings.cluster)
        teller = Teller(board, mint, bus, clock)
        projector = Projector(board, api, clock) if api else None
        stack.push_async_callback(tasks.close)
        if settings.once:
            await prober.once(tasks)
            sys.stdout.write(_render(settings, board, prober))
            return 0
        stop = stop_signals()
        prober.start(tasks)
        tasks.forever("hardware", teller.hardware)
        tasks.forever("telemetry", lambda: teller.telemetry(machine.busy, machine.memory))
        tasks.forever("notices", Noticer(teller, _looks(settings, files)).run)
        if api and projector:
            tasks.forever(
                "node", Informer(api, NODES, projector.take, fields=f"metadata.name={board.station.node}").run
            )
            tasks.forever("projection", projector.run)
        tasks.forever(
            "ops", lambda: _serve_ops(settings, _readiness(board, bus, projector)), backoff=BIND_AGAIN_SECONDS
        )
        await stop.wait()
        await teller.status("offline", "the agent was stopped")
    return 0


def _station(settings: AgentSettings) -> Station:
    return Station(
        node=settings.node_name or host_name(),
        prefix=settings.label_prefix,
        version=__version__,
        interval=settings.interval,
        telemetry_interval=settings.telemetry_interval,
    )


async def _bus(settings: AgentSettings, clock: SystemClock, stack: AsyncExitStack) -> Bus | None:
    if settings.dry_run or not settings.nats_url:
        return None
    bus = await NatsBus.start(
        settings.nats_url,
        name=f"flexinfer-agent {settings.node_name or host_name()}",
        cluster=settings.cluster,
        credentials=settings.nats_credentials,
        ca=settings.nats_ca,
        clock=clock,
    )
    stack.push_async_callback(bus.close)
    return bus


async def _api(settings: AgentSettings, stack: AsyncExitStack) -> KubeApi | None:
    if settings.dry_run:
        return None
    try:
        client = await KubeClient.connect(settings.kubeconfig)
    except KubeconfigError as err:
        log.warning("labels and annotations are not written: %s", err)
        return None
    stack.push_async_callback(client.aclose)
    return client


def _looks(settings: AgentSettings, files: HostFiles) -> tuple[notices.Look, ...]:
    async def drain_file() -> Notice | None:
        return notices.from_file(files.read(settings.drain_file, 1024))

    async def logind() -> Notice | None:
        raw = files.read(notices.SCHEDULED_FILE, 1024)
        return notices.from_logind(raw or files.read(settings.host_root + notices.SCHEDULED_FILE, 1024))

    return drain_file, logind


def _readiness(board: Board, bus: Bus | None, projector: Projector | None) -> Readiness:
    def degraded() -> str | None:
        parts = [] if bus is None or bus.connected else ["the bus cannot be reached"]
        if projector and projector.problem:
            parts.append(projector.problem)
        return "; ".join(parts) or None

    ready = Readiness(degraded=degraded)
    ready.require("hardware", lambda: None if board.hardware else "the first probe is not back yet")
    return ready


async def _serve_ops(settings: AgentSettings, ready: Readiness) -> None:
    """Serve until cancelled. 9100 is node_exporter's port too: a busy one is said, and tried again."""
    try:
        sock = listen(settings.metrics_host, settings.metrics_port)
    except PortBusy as err:
        named = "metrics_port" in settings.model_fields_set
        log.log(logging.ERROR if named else logging.WARNING, "no /metrics, the agent goes on without: %s", err.strerror)
        return
    server = await WebServer(ops_app(ready.report), sock, drain=1.0).start()
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


def _render(settings: AgentSettings, board: Board, prober: Prober) -> str:
    assert board.inventory is not None  # noqa: S101 - settled by the probe just made
    labels = {**board.labels, settings.label_prefix + "enabled": "true"}
    found = document(board.inventory, labels, board.annotations(board.figures), prober.attempts)
    if settings.output == "json":
        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    if settings.output == "yaml":
        return str(yaml.safe_dump(found, sort_keys=False))
    return table(found)
