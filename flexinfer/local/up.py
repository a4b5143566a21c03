"""``flexinfer up``: the whole system on one machine, and one model through it."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flexinfer import __version__
from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.config.people import UpSettings
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import NodeHardware, NodeStatus
from flexinfer.contracts.kubernetes import CRDS, MODELDEPLOYMENTS, NAMESPACES, PODS, Object
from flexinfer.local import control_plane, kept, preflight, running
from flexinfer.local.chat import ask, curl
from flexinfer.local.errors import UserError
from flexinfer.local.fleet.agents import VirtualNodes, World
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.kubeapi.keeping import Kept
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.node_logs import NodeLogs
from flexinfer.local.processes import Reaper
from flexinfer.local.progress import Progress
from flexinfer.local.runner import ProcessRunner
from flexinfer.local.schedloop import SchedulerLoop
from flexinfer.local.story import STORY_TYPES, Story
from flexinfer.ports import BusFact, Invalid, KubeError, KubeFact, NotFound, Relisted, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, fail, host_name
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.virtual.declared import VirtualFleet

PART_DEADLINE = 60.0
ANSWER_PATIENCE = 120.0


@dataclass(slots=True)
class System:
    """What is running."""

    at: control_plane.Addresses
    api: KubeClient
    bus: NatsBus


async def run(settings: UpSettings) -> int:
    """Start, show, serve until a signal; the exit code."""
    console = Console()
    progress = Progress(console, SystemClock())
    stopped = _cancel_on_signal()
    try:
        async with AsyncExitStack() as stack:
            try:
                await _up(settings, progress, stack)
            except asyncio.CancelledError:
                if not stopped.is_set():
                    raise
                progress.plain("stopping ...")
                return 130 if settings.check else 0
    except UserError as err:
        return fail(f"flexinfer up: {err}")
    return 0


def _cancel_on_signal() -> asyncio.Event:
    """The first SIGINT or SIGTERM cancels this task, later ones do not disturb the tear-down."""
    stopped = asyncio.Event()
    task = asyncio.current_task()

    def on_signal() -> None:
        if task and not stopped.is_set():
            stopped.set()
            task.cancel()

    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, on_signal)
    return stopped


async def _up(settings: UpSettings, progress: Progress, stack: AsyncExitStack) -> None:
    preflight.require_extras()
    manifest = preflight.example(settings)
    fleet = preflight.fleet(settings)
    kept = _kept(settings, fleet, stack)
    progress.title(f"FlexInfer {__version__} on this machine")
    system = await _start(settings, progress, stack, fleet, kept)
    if manifest is None:
        progress.plain(f"OpenAI URL: {system.at.proxy_url}/v1    KUBECONFIG={system.at.kubeconfig}")
    else:
        await _walk(settings, progress, system, manifest)
    if not settings.check:
        await asyncio.Event().wait()  # until a signal cancels


def _kept(settings: UpSettings, fleet: VirtualFleet | None, stack: AsyncExitStack) -> Kept | None:
    """What an earlier run left in the state directory, as after a reboot of all its nodes. Raises UserError."""
    folder = settings.state_dir
    if folder is None:
        return None
    stack.callback(os.close, kept.claim(folder))
    if settings.kubeconfig is not None:
        return None
    found = kept.kept_objects(folder)
    nodes = {host_name(), *(node.name for node in fleet.expanded())} if fleet else {host_name()}
    return found and found.after_reboot(nodes, control_plane.PART_PODS)


async def _start(
    settings: UpSettings, progress: Progress, stack: AsyncExitStack, fleet: VirtualFleet | None, objects: Kept | None
) -> System:
    ports = kept.Ports(settings.state_dir)
    nats_port, api_port, proxy_port, dashboard_port = preflight.usable_ports(settings, ports)
    reaper = await Reaper.start()
    stack.push_async_callback(reaper.close)
    state = _state_dir(settings, stack, reaper)
    supervisor = Supervisor("up")

    with progress.step("bus", "starting nats-server") as step:
        server = NatsServer(state / "nats", port=nats_port, spawn=reaper.spawn)
        await server.start()
        stack.push_async_callback(server.stop)
        bus = await NatsBus.start(server.url, name="up", clock=SystemClock())
        stack.push_async_callback(bus.close)
        step.done(f"{server.url}  [dim]NATS JetStream in {state / 'nats'}[/dim]")

    with progress.step("api", "starting the Kubernetes API") as step:
        kubeconfig, embedded = await _api(settings, stack, state, api_port, objects)
        api = await KubeClient.connect(kubeconfig)
        stack.push_async_callback(api.aclose)
        await _prepare(api)
        again = f"  [dim]{objects.count} objects of the run before[/dim]" if objects and embedded else ""
        step.done(f"KUBECONFIG={kubeconfig}{again}")

    node, record = host_name(), settings.record and settings.record.resolve()
    runner = ProcessRunner(api, node, control_plane.image_table(record), state / "pods", reaper=reaper)
    runners = {node: runner}
    if embedded is not None:
        embedded.logs = NodeLogs(embedded.store, runners).read
    await runner.start()
    stack.push_async_callback(runner.stop)
    at = control_plane.Addresses(
        nats_url=server.url, kubeconfig=kubeconfig, node=node, proxy_port=proxy_port,
        agent_port=ports.pick("agent"), manager_port=ports.pick("manager"), dashboard_port=dashboard_port,
        scheduler_port=ports.pick("scheduler"), global_proxy_port=ports.pick("global-proxy"),
        record=record,
        # Engines of declared nodes are not real and need no weights.
        models=None if fleet else state / "models",
    )  # fmt: skip
    note = running.leave(
        running.Running(
            pid=os.getpid(), nats_url=server.url, kubeconfig=str(kubeconfig), proxy_url=at.proxy_url,
            scheduler_url=at.scheduler_url, state_dir=str(state),
        )
    )  # fmt: skip
    stack.callback(running.remove, note)
    stack.push_async_callback(supervisor.close)
    system = System(at, api, bus)
    await _parts(system, progress, runner)
    await _node(system, progress)
    await _tell_gone(bus, objects.gone if objects else ())
    if fleet is not None:
        world = World(api, bus, SystemClock(), reaper, state / "virtual", control_plane.image_table(at.record))
        runners |= await _virtual(fleet, world, progress, stack)
    if settings.scheduler_loop:
        supervisor.forever("scheduler loop", SchedulerLoop(api, at.scheduler_url).run)
    if embedded is not None:
        stack.push_async_callback(embedded.freeze)  # runs first: the tear-down is not kept
    return system


def _state_dir(settings: UpSettings, stack: AsyncExitStack, reaper: Reaper) -> Path:
    if settings.state_dir is not None:
        return settings.state_dir.resolve()
    path = Path(tempfile.mkdtemp(prefix="flexinfer-"))
    reaper.track_dir(path)
    stack.callback(shutil.rmtree, path, ignore_errors=True)
    return path


async def _api(
    settings: UpSettings, stack: AsyncExitStack, state: Path, port: int, objects: Kept | None
) -> tuple[Path, EmbeddedApi | None]:
    """The kubeconfig to use, and the server if it is our own."""
    if settings.kubeconfig is not None:
        if not settings.kubeconfig.is_file():
            raise UserError(f"--kubeconfig {settings.kubeconfig}: there is no such file")
        return settings.kubeconfig.resolve(), None

    server = EmbeddedApi(port=port, kept=objects, folder=state / kept.OBJECTS if settings.state_dir else None)
    await server.start()
    stack.push_async_callback(server.stop)
    path = state / "kubeconfig"
    server.write_kubeconfig(path)
    return path, server


async def _prepare(api: KubeClient) -> None:
    """CRDs and our namespace."""
    for crd in crd_manifests():
        await api.patch(CRDS, crd["metadata"]["name"], crd, kind="apply", field_manager="flexinfer-up")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": control_plane.NAMESPACE}}
    await api.patch(NAMESPACES, control_plane.NAMESPACE, body, kind="apply", field_manager="flexinfer-up")


async def _parts(system: System, progress: Progress, runner: ProcessRunner) -> None:
    """Start our executables and wait until each is ready."""
    wanted = control_plane.parts(system.at)
    with progress.step("control", "starting manager, agent, extender, proxies") as step:
        for part in wanted:
            body = control_plane.pod(part, system.at.node)
            with suppress(NotFound):  # the usual case: only a real cluster may still have one
                await system.api.delete(PODS, part.name, control_plane.NAMESPACE, grace_seconds=0)
            await system.api.create(PODS, body, control_plane.NAMESPACE)
        await _all_ready(system.api, {part.name for part in wanted}, runner)
        step.done(", ".join(part.name.removeprefix("flexinfer-") for part in wanted) + " ready")


async def _all_ready(api: KubeClient, names: set[str], runner: ProcessRunner) -> None:
    waiting = set(names)
    ready = asyncio.Event()

    def sink(fact: KubeFact) -> None:
        for pod in fact.objects if isinstance(fact, Relisted) else (fact.object,):
            if _is_ready(pod):
                waiting.discard(pod["metadata"]["name"])
        if not waiting:
            ready.set()

    watching = Supervisor("up")
    informer = Informer(api, PODS, sink, namespace=control_plane.NAMESPACE)
    watching.forever("parts", informer.run)
    try:
        async with asyncio.timeout(PART_DEADLINE):
            await ready.wait()
    except TimeoutError as err:
        name = min(waiting)
        tail = await runner.logs(control_plane.NAMESPACE, name, None, 5)
        raise UserError(f"{name} was not ready within {PART_DEADLINE:.0f} s; its last log lines:\n{tail}") from err
    finally:
        await watching.close()


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


async def _node(system: System, progress: Progress) -> None:
    """Wait for the agent's first hardware event and say what it found."""
    found: asyncio.Future[NodeHardware] = asyncio.get_running_loop().create_future()

    def sink(fact: BusFact) -> None:
        for event in fact.events if isinstance(fact, Snapshot) else (fact,):
            if isinstance(event.data, NodeHardware) and event.data.node == system.at.node and not found.done():
                found.set_result(event.data)

    with progress.step("node", "waiting for the agent's hardware event") as step:
        follow = await system.bus.follow((NodeHardware,), sink)
        try:
            async with asyncio.timeout(PART_DEADLINE):
                step.done(describe(await found))
        except TimeoutError as err:
            raise UserError("the agent published no hardware event; see kubectl logs of flexinfer-agent") from err
        finally:
            await follow.close()


async def _tell_gone(bus: NatsBus, nodes: Sequence[str]) -> None:
    """The bus keeps what nodes of an earlier run said last; they will not say more."""
    for node in nodes:
        mint = EventMint.start("agent", node, boot_id(), SystemClock().now)
        await bus.publish(mint.mint(NodeStatus(node=node, state="offline", reason="the node is not part of this run")))


async def _virtual(
    fleet: VirtualFleet, world: World, progress: Progress, stack: AsyncExitStack
) -> dict[str, ProcessRunner]:
    """The runners of the nodes."""
    with progress.step("virtual", "adding declared nodes") as step:
        nodes = VirtualNodes(fleet, world)
        stack.push_async_callback(nodes.stop)
        await nodes.start()
        step.done(f"{len(nodes.names)} declared nodes, not real hardware: {', '.join(nodes.names)}")
    return nodes.runners


def describe(hardware: NodeHardware) -> str:
    """One line about a node."""
    cpu = hardware.cpu
    memory = f", {cpu.memory_mib / 1024:.0f} GiB" if cpu.memory_mib else ""
    avx = "AVX-512" if cpu.avx512 else "no AVX-512"
    devices = [
        f"{d.product or d.vendor} {round((d.memory_mib or 0) / 1024)} GiB" for d in hardware.devices if d.counted
    ]
    return (
        f"{hardware.node}: {cpu.model or 'CPU'}, {cpu.threads} threads{memory}, {avx}, {', '.join(devices) or 'no GPU'}"
    )


async def _walk(settings: UpSettings, progress: Progress, system: System, manifest: Object) -> None:
    """Apply the example and tell its story until it answers."""
    meta = manifest["metadata"]
    namespace, name = meta.setdefault("namespace", "default"), meta["name"]
    story = Story(namespace, name, progress)
    follow = await system.bus.follow(STORY_TYPES, story.sink)
    try:
        await _apply(system.api, manifest)
        progress.mark("applied", f"{manifest['kind']} {namespace}/{name}")
        async with asyncio.timeout(settings.timeout):
            while story.phase != "Running":
                await story.changed.wait()
                story.changed.clear()
                if story.phase == "Failed":
                    raise UserError(f"{name} failed: {story.message} ({story.reason})")
    except TimeoutError as err:
        raise UserError(f"{name} was not Running within {settings.timeout:.0f} s (phase {story.phase or '?'})") from err
    finally:
        await follow.close()
    progress.mark("running", f"{namespace}/{name} serves", progress.elapsed())
    answer, endpoint = await _answer(system.at.proxy_url, name, patience=ANSWER_PATIENCE if settings.state_dir else 0.0)
    progress.mark("answer", f"{endpoint} says: {answer}".replace("[", "\\["))
    if not settings.check:
        _hints(settings, progress, system, name)


async def _answer(proxy_url: str, name: str, patience: float) -> tuple[str, str]:
    """The first answer. What the bus kept may say Running for a moment while the engine starts again."""
    clock = SystemClock()
    began = clock.monotonic()
    while True:
        try:
            return await ask(proxy_url, name)
        except UserError:
            if clock.monotonic() - began >= patience:
                raise
        await asyncio.sleep(1.0)


async def _apply(api: KubeClient, manifest: Object) -> None:
    if manifest.get("kind") != MODELDEPLOYMENTS.kind:
        raise UserError(f"{manifest.get('kind')}: the example must be a {MODELDEPLOYMENTS.kind}")
    meta = manifest["metadata"]
    try:
        await api.patch(
            MODELDEPLOYMENTS, meta["name"], manifest, meta["namespace"], kind="apply", field_manager="flexinfer-up"
        )
    except Invalid as err:
        raise UserError(f"the manifest was refused: {err.message}") from err
    except KubeError as err:
        raise UserError(f"the manifest could not be applied: {err}") from err


def _hints(settings: UpSettings, progress: Progress, system: System, name: str) -> None:
    at = system.at
    progress.plain("")
    progress.plain("Ask it:")
    progress.plain("  " + curl(at.proxy_url, name))
    progress.plain("  " + curl(at.proxy_url, name, stream=True))
    progress.plain("Watch it:")
    progress.plain(f"  {at.dashboard_url} in a browser shows it live")
    progress.plain("  .venv/bin/flexinfer status")
    progress.plain("  .venv/bin/flexinfer events tail")
    progress.plain(f"  KUBECONFIG={at.kubeconfig} kubectl get modeldeployments,pods")
    progress.plain(f"  KUBECONFIG={at.kubeconfig} kubectl delete modeldeployment {name}")
    kept_in = f" but {settings.state_dir}" if settings.state_dir else ""
    progress.plain(f"Ctrl-C stops everything and leaves nothing behind{kept_in}.")
