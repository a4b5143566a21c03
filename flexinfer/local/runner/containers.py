"""One container: a process with its files, its probes and its end."""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flexinfer.local.processes import signal_group, spawn, stop
from flexinfer.local.reaper import started_at
from flexinfer.local.runner.housing import Home, Launch
from flexinfer.local.runner.logs import LogFiles
from flexinfer.local.runner.probes import Look, Probe, Prober, Tally, probes_of
from flexinfer.local.runner.records import Ended, Record, Running
from flexinfer.local.runner.site import Site
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

MESSAGE_BYTES = 4096
LIFECYCLE_SECONDS = 2.0  # what is left to a process whose preStop used up the grace period, as the kubelet grants

Emit = Callable[[str, str, str], None]


class Container:
    """Runs the process of one container, once per ``run``. ``changed`` is called after each change of the record."""

    def __init__(self, record: Record, folder: Path, site: Site, emit: Emit, changed: Callable[[], None]) -> None:
        self.record = record
        self.logs = LogFiles(folder / "logs" / record.name)
        self._folder = folder
        self._site = site
        self._emit = emit
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._prober: Prober | None = None
        self._launch: Launch | None = None
        self._home: Home | None = None
        self.message_file = folder / "termination" / record.name

    @property
    def scratch(self) -> Path:
        """Working directory unless the container names one, and TMPDIR."""
        return self._folder / "scratch" / self.record.name

    async def run(self, launch: Launch, home: Home) -> Ended:
        """Start, probe, wait for the end; the record follows along."""
        record = self.record
        begun = self._site.clock.now()
        self._launch, self._home = launch, home
        try:
            process = await self._start(launch)
        except OSError as err:
            text = f"cannot start {launch.command.argv[0]!r}: {err.strerror or err}"
            self._emit("Warning", "Failed", text)
            return self._end(Ended(128, 0, "StartError", text, begun, self._site.clock.now()))
        self._process = process
        record.container_id = f"process://{process.pid}-{record.restarts}"
        record.state = Running(self._site.clock.now())
        self._prober = Prober(home.ip, _named_ports(record.spec), self.execute)
        self._emit("Normal", "Started", f"Started container {record.name}")
        tasks = Supervisor(f"probes {record.name}")
        self._watch(tasks)
        self._changed()
        try:
            code = await process.wait()
        finally:
            await tasks.close()
            # What the process left running in its group ends with it, as it would with its container.
            signal_group(process.pid, signal.SIGKILL)
            self._site.reaper.forget_pid(process.pid)
            self._pid_file(process.pid).unlink(missing_ok=True)
            self._process = None
        return self._end(self._ended(code, begun))

    async def _start(self, launch: Launch) -> asyncio.subprocess.Process:
        command = launch.command
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.message_file.parent.mkdir(parents=True, exist_ok=True)
        self.message_file.write_bytes(b"")
        program = command.argv[0]
        if "/" not in program:
            found = shutil.which(program, path=command.env.get("PATH"))
            if found is None:
                raise FileNotFoundError(2, "no such program on this machine", program)
            program = found
        output = self.logs.open_next()
        try:
            process = await spawn(
                (program, *command.argv[1:]), env=command.env, cwd=launch.cwd, output=output, reaper=self._site.reaper
            )
        finally:
            os.close(output)
        file = self._pid_file(process.pid)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(started_at(process.pid))
        return process

    def _pid_file(self, pid: int) -> Path:
        return self._folder / "pids" / str(pid)

    def _ended(self, code: int, begun: float) -> Ended:
        signum = -code if code < 0 else 0
        exit_code = 128 + signum if signum else code
        return Ended(
            exit_code=exit_code,
            signal=signum,
            reason="Completed" if exit_code == 0 else "Error",
            message=self._last_message(exit_code),
            started_at=begun,
            finished_at=self._site.clock.now(),
            container_id=self.record.container_id,
        )

    def _end(self, ended: Ended) -> Ended:
        record = self.record
        record.state = ended
        record.started = record.ready = False
        self._changed()
        return ended

    def _last_message(self, exit_code: int) -> str:
        try:
            with self.message_file.open("rb") as file:
                message = file.read(MESSAGE_BYTES).decode(errors="replace")
        except OSError:
            message = ""
        if not message and exit_code and self.record.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            return self.logs.last_words()
        return message

    # --- probes ----------------------------------------------------------------------------------------------

    def _watch(self, tasks: Supervisor) -> None:
        """Start the probes; what has none is started, or ready, by running."""
        probes = probes_of(self.record.spec)
        self.record.started = "startup" not in probes
        self.record.ready = self.record.started and "readiness" not in probes
        tasks.once(
            "probes", self._probe_all(probes.get("startup"), probes.get("readiness"), probes.get("liveness"), tasks)
        )

    async def _probe_all(
        self, startup: Probe | None, readiness: Probe | None, liveness: Probe | None, tasks: Supervisor
    ) -> None:
        await self._post_start()
        if startup is not None:
            await self._probe(startup)
        self.record.started = True
        self.record.ready = readiness is None
        self._changed()
        if liveness is not None:
            tasks.once("liveness", self._probe(liveness))
        if readiness is not None:
            await self._probe(readiness)

    async def _probe(self, probe: Probe) -> None:
        """Look until the process ends; a startup probe only until it has passed."""
        assert self._prober is not None  # noqa: S101 - set before the probes start
        tally = Tally(probe)
        await self._pause(probe, tally, probe.delay)
        while True:
            success, text = await self._prober.look(probe.action, probe.timeout)
            if not success:
                self._emit("Warning", "Unhealthy", f"{probe.kind.capitalize()} probe failed: {text}")
            if tally.count(success) and await self._verdict(probe, success):
                return
            await self._pause(probe, tally, probe.period)

    async def _pause(self, probe: Probe, tally: Tally, seconds: float) -> None:
        """Wait for the next look; meanwhile look more often at what has not been ready yet, counting only success."""
        eager = self._site.pacing.eager
        if eager is None or tally.holds is not None or probe.kind == "liveness" or probe.successes > 1:
            await asyncio.sleep(seconds)
            return
        assert self._prober is not None  # noqa: S101 - set before the probes start
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await asyncio.sleep(eager)
                    if (await self._prober.look(probe.action, probe.timeout))[0]:
                        return

    async def _verdict(self, probe: Probe, holds: bool) -> bool:  # noqa: FBT001 - the verdict
        """Act on a threshold reached; True when this probe has nothing left to do."""
        if probe.kind == "readiness":
            self.record.ready = holds
            self._changed()
            return False
        if holds:
            return probe.kind == "startup"
        reason = f"Container {self.record.name} failed {probe.kind} probe, will be restarted"
        self._emit("Normal", "Killing", reason)
        await self.stop(30.0 if probe.grace is None else probe.grace)
        return True

    async def _post_start(self) -> None:
        hook = (self.record.spec.get("lifecycle") or {}).get("postStart")
        if not hook or self._prober is None:
            return
        success, text = await self._prober.look(hook, 3600.0)
        if not success:
            self._emit("Warning", "FailedPostStartHook", text)
            await self.stop(2.0)

    # --- the end ---------------------------------------------------------------------------------------------

    async def stop(self, grace: float) -> None:
        """preStop, SIGTERM, and SIGKILL when ``grace`` seconds are over. ``run`` returns when the process is gone."""
        process = self._process
        if process is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        hook = (self.record.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace > 0 and self._prober is not None:
            success, text = await self._prober.look(hook, grace)
            if not success:
                self._emit("Warning", "FailedPreStopHook", text)
        least = LIFECYCLE_SECONDS if hook and grace > 0 else 0.0
        await stop(process, max(least, deadline - loop.time()))

    async def execute(self, argv: list[str], limit: float) -> Look:
        """Run a command with the container's environment; success is exit code 0, the text is its output."""
        if self._launch is None or self._home is None or self._process is None or not argv:
            return False, "there is no command, or nothing to run it beside"
        inside = self._home.beside(self._launch, self._process.pid, argv)
        env, argv = inside.command.env, list(inside.command.argv)
        program = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=env.get("PATH"))
        if program is None:
            return False, f"no such program on this machine: {argv[0]}"
        process = await asyncio.create_subprocess_exec(
            program, *argv[1:], env=dict(env), cwd=inside.cwd, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(limit):
                output, _ = await process.communicate()
        finally:
            signal_group(process.pid, signal.SIGKILL)
            await process.wait()
        return process.returncode == 0, output[:1024].decode(errors="replace").strip()


def _named_ports(spec: dict[str, object]) -> dict[str, int]:
    ports = spec.get("ports")
    entries = ports if isinstance(ports, list) else []
    return {str(port["name"]): int(port["containerPort"]) for port in entries if port.get("name")}
