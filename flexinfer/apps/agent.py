"""``flexinfer-agent``: what accelerators this node has, told to the bus and to the Node object.

Bus and API may each be away, at start or later: the agent goes on with what it can reach. The clients are imported
where they are made: one probe alone (``--once --dry-run``) needs none of them and starts in half the time.
"""

# ruff: noqa: PLC0415 - see above

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from flexinfer import __version__
from flexinfer.adapters.gpu.files import RootedFiles
from flexinfer.adapters.gpu.machine import Machine
from flexinfer.adapters.gpu.sources import sources
from flexinfer.config.agent import AgentSettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.kubernetes import NODES, PODS
from flexinfer.contracts.labels import ENABLED_LABEL
from flexinfer.core.hardware import notices
from flexinfer.core.hardware.notices import Notice
from flexinfer.core.hardware.report import document, table
from flexinfer.ports import Bus, HostFiles, KubeApi
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.caching import CacheKeeper
from flexinfer.runtime.agent.cloud import CloudNotices
from flexinfer.runtime.agent.engines import EngineWatch, Pods
from flexinfer.runtime.agent.noticing import Noticer
from flexinfer.runtime.agent.pods import PodWatch
from flexinfer.runtime.agent.probing import Prober
from flexinfer.runtime.agent.projecting import Projector
from flexinfer.runtime.agent.telling import Teller
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.taping import Tape
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

BIND_AGAIN_SECONDS = 30.0


@dataclass(slots=True)
class _Parts:
    """What one process is made of."""

    settings: AgentSettings
    clock: SystemClock
    files: HostFiles
    machine: Machine
    board: Board
    prober: Prober
    tasks: Supervisor
    bus: Bus | None
    api: KubeApi | None
    tape: Tape


async def run(settings: AgentSettings) -> int:
    """Until SIGTERM, or one probe with ``--once``; the exit code."""
    async with AsyncExitStack() as stack:
        parts = await _compose(settings, stack)
        mint = EventMint.start("agent", parts.board.station.node, boot_id(), parts.clock.now, settings.cluster)
        teller = Teller(parts.board, mint, parts.bus, parts.clock)
        projector = Projector(parts.board, parts.api, parts.clock) if parts.api else None
        if settings.once:
            return await _once(parts, teller, projector)
        stop = stop_signals()
        _start(parts, teller, projector, stack)
        await stop.wait()
        await parts.tasks.close()
        await teller.status("offline", "the agent was stopped")
    return 0


async def _compose(settings: AgentSettings, stack: AsyncExitStack) -> _Parts:
    clock = SystemClock()
    files = RootedFiles(settings.root)
    machine = Machine(files)
    board = Board(_station(settings), machine.cpu())
    tasks = Supervisor("agent")
    tape = Tape.open(settings, "agent", board.station.node, clock.now, stack)
    bus, api = await _bus(settings, clock, stack), await _api(settings, stack)
    stack.push_async_callback(tasks.close)
    prober = Prober(board, sources(files, machine, settings.root, settings.host_root, clock), clock)
    return _Parts(settings, clock, files, machine, board, prober, tasks, bus and tape.bus(bus), api, tape)


def _start(parts: _Parts, teller: Teller, projector: Projector | None, stack: AsyncExitStack) -> None:
    from flexinfer.adapters.inference.fetch import PageReader

    tasks, machine = parts.tasks, parts.machine
    pages = PageReader()
    stack.push_async_callback(pages.aclose)
    parts.prober.start(tasks)
    tasks.forever("hardware", teller.hardware)
    tasks.forever("telemetry", lambda: teller.telemetry(machine.busy, machine.memory))
    cloud = CloudNotices(parts.settings.cloud_notices, pages.read, parts.clock)
    tasks.forever("notices", Noticer(teller, (*_looks(parts), cloud.look)).run)
    if parts.api and projector:
        engines = _watch(parts, parts.api, teller, projector)
        tasks.forever("engines", EngineWatch(parts.board, pages.read, parts.clock, engines).run)
    ready = _readiness(parts, projector)
    tasks.forever("ops", lambda: _serve_ops(parts.settings, ready), backoff=BIND_AGAIN_SECONDS)


def _watch(parts: _Parts, api: KubeApi, teller: Teller, projector: Projector) -> Pods:
    """Follow the Node and its pods; the engines among them."""
    from flexinfer.adapters.kube.informer import Informer
    from flexinfer.adapters.kube.recorder import EventRecorder

    tasks, node = parts.tasks, parts.board.station.node
    recorder = EventRecorder(api, "agent", parts.clock, node)
    pods = PodWatch(parts.board, recorder.emit, teller.tell)
    if parts.settings.model_cache is not None:
        tasks.forever("model cache", _cache_keeper(parts, parts.settings.model_cache, pods).run)
    tasks.forever("kube events", recorder.run)
    tasks.forever("node", Informer(api, NODES, parts.tape.sink(projector.take), fields=f"metadata.name={node}").run)
    tasks.forever("pods", Informer(api, PODS, parts.tape.sink(pods.take), fields=f"spec.nodeName={node}").run)
    tasks.forever("pod checks", pods.run)
    tasks.forever("projection", projector.run)
    return pods.engines


def _cache_keeper(parts: _Parts, folder: Path, pods: PodWatch) -> CacheKeeper:
    from flexinfer.adapters.weights.shelf import Shelf

    limit, floor = (int(gb * 1e9) for gb in (parts.settings.model_cache_limit_gb, parts.settings.model_cache_floor_gb))
    return CacheKeeper(parts.board, Shelf(folder), pods.cache_entries, parts.clock, limit, floor)


async def _once(parts: _Parts, teller: Teller, projector: Projector | None) -> int:
    """Probe, print, and unless it is a dry run write what was found once."""
    await parts.prober.once(parts.tasks)
    if parts.board.hardware is not None:
        await teller.tell(parts.board.hardware)
    if projector is not None:
        await projector.once()
    sys.stdout.write(render(_document(parts), parts.settings.output))
    return 0


def _station(settings: AgentSettings) -> Station:
    return Station(
        node=settings.node_name or host_name(),
        prefix=settings.label_prefix,
        version=__version__,
        interval=settings.interval,
        telemetry_interval=settings.telemetry_interval,
        caches=settings.model_cache is not None,
    )


async def _bus(settings: AgentSettings, clock: SystemClock, stack: AsyncExitStack) -> Bus | None:
    if settings.dry_run or not settings.nats_url:
        return None
    from flexinfer.adapters.bus.nats import NatsBus

    bus = await NatsBus.of(settings, f"flexinfer-agent {settings.node_name or host_name()}", clock)
    stack.push_async_callback(bus.close)
    return bus


async def _api(settings: AgentSettings, stack: AsyncExitStack) -> KubeApi | None:
    if settings.dry_run:
        return None
    from flexinfer.adapters.kube.client import KubeClient
    from flexinfer.adapters.kube.credentials import KubeconfigError

    try:
        client = await KubeClient.connect(settings.kubeconfig)
    except KubeconfigError as err:
        log.warning("labels and annotations are not written: %s", err)
        return None
    stack.push_async_callback(client.aclose)
    return client


def _looks(parts: _Parts) -> tuple[notices.Look, ...]:
    settings, files = parts.settings, parts.files

    async def drain_file() -> Notice | None:
        return notices.from_file(files.read(settings.drain_file, 1024))

    async def logind() -> Notice | None:
        raw = files.read(notices.SCHEDULED_FILE, 1024)
        return notices.from_logind(raw or files.read(settings.host_root + notices.SCHEDULED_FILE, 1024))

    return drain_file, logind


def _readiness(parts: _Parts, projector: Projector | None) -> Readiness:
    def degraded() -> str | None:
        found = [] if parts.bus is None or parts.bus.connected else ["the bus cannot be reached"]
        if projector and projector.problem:
            found.append(projector.problem)
        return "; ".join(found) or None

    ready = Readiness(degraded=degraded)
    ready.require("hardware", lambda: None if parts.board.hardware else "the first probe is not back yet")
    return ready


async def _serve_ops(settings: AgentSettings, ready: Readiness) -> None:
    """Serve until cancelled. 9100 is node_exporter's port too: a busy one is said, and tried again."""
    from flexinfer.adapters.web.ops import ops_app
    from flexinfer.adapters.web.serve import PortBusy, WebServer, listen

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


def _document(parts: _Parts) -> dict[str, Any]:
    board = parts.board
    assert board.inventory is not None  # noqa: S101 - settled by the probe just made
    labels = {**board.labels, board.station.prefix + ENABLED_LABEL: "true"}
    return document(board.inventory, labels, board.annotations(board.figures), parts.prober.attempts)


async def examine(settings: AgentSettings) -> dict[str, Any]:
    """What ``--once --output json`` prints, for callers in the same process: what was found, what was tried and why
    it failed (``sources``), and what is wrong (``problems``). Writes nothing anywhere."""
    async with AsyncExitStack() as stack:
        parts = await _compose(settings.model_copy(update={"dry_run": True, "once": True}), stack)
        await parts.prober.once(parts.tasks)
        return _document(parts)


def render(found: dict[str, Any], output: str) -> str:
    """The document as ``text``, ``json`` or ``yaml``."""
    if output == "json":
        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    if output == "yaml":
        return str(yaml.safe_dump(found, sort_keys=False, allow_unicode=True))
    return table(found)
