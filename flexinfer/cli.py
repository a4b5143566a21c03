"""Entry points: argv of each executable, and the ``flexinfer`` command for people."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from flexinfer import __version__
from flexinfer.config import people
from flexinfer.config.common import Settings, parse
from flexinfer.config.completion import script
from flexinfer.config.people import ClientSettings, LogsSettings
from flexinfer.local import running
from flexinfer.runtime.process import fail, run_app
from flexinfer.telemetry import logs

# program -> (settings module, settings class, app module); imported on use, so that --help is quick.
_PROGRAMS = {
    "flexinfer-agent": ("flexinfer.config.agent", "AgentSettings", "flexinfer.apps.agent"),
    "flexinfer-manager": ("flexinfer.config.manager", "ManagerSettings", "flexinfer.apps.manager"),
    "flexinfer-bench": ("flexinfer.config.bench", "BenchSettings", "flexinfer.apps.bench"),
    "flexinfer-fetch": ("flexinfer.config.fetch", "FetchSettings", "flexinfer.apps.fetch"),
    "flexinfer-sched": ("flexinfer.config.scheduler", "SchedulerSettings", "flexinfer.apps.scheduler"),
    "flexinfer-proxy": ("flexinfer.config.proxy", "ProxySettings", "flexinfer.apps.proxy"),
    "flexinfer-dashboard": ("flexinfer.config.dashboard", "DashboardSettings", "flexinfer.apps.dashboard"),
    "flexinfer-global-proxy": ("flexinfer.config.proxy", "GlobalProxySettings", "flexinfer.apps.global_proxy"),
    "flexinfer-webhook": ("flexinfer.config.webhook", "WebhookSettings", "flexinfer.apps.webhook"),
}


def run_program(program: str, argv: Sequence[str] | None = None) -> int:
    """Parse, set up logs, run the app; the exit code."""
    settings_module, settings_class, app_module = _PROGRAMS[program]
    settings = parse(getattr(importlib.import_module(settings_module), settings_class), program, argv)
    logs.setup(settings.log_level, settings.log_format)
    app = importlib.import_module(app_module)
    try:
        return run_app(lambda: app.run(settings))
    except OSError as err:  # a busy port, a missing file: one sentence, no stack
        return fail(f"{program}: {err.strerror or err}")


def agent() -> None:
    """``flexinfer-agent``."""
    sys.exit(run_program("flexinfer-agent"))


def manager() -> None:
    """``flexinfer-manager``."""
    sys.exit(run_program("flexinfer-manager"))


def bench() -> None:
    """``flexinfer-bench``."""
    sys.exit(run_program("flexinfer-bench"))


def fetch() -> None:
    """``flexinfer-fetch``."""
    sys.exit(run_program("flexinfer-fetch"))


def scheduler() -> None:
    """``flexinfer-sched``."""
    sys.exit(run_program("flexinfer-sched"))


def proxy() -> None:
    """``flexinfer-proxy``."""
    sys.exit(run_program("flexinfer-proxy"))


def dashboard() -> None:
    """``flexinfer-dashboard``."""
    sys.exit(run_program("flexinfer-dashboard"))


def global_proxy() -> None:
    """``flexinfer-global-proxy``."""
    sys.exit(run_program("flexinfer-global-proxy"))


def webhook() -> None:
    """``flexinfer-webhook``."""
    sys.exit(run_program("flexinfer-webhook"))


# flexinfer <command> -> (settings class in config.people, module with run(settings), what it does)
_COMMANDS = {
    "up": ("UpSettings", "flexinfer.local.up", "run everything on this machine, with one example model"),
    "status": ("StatusSettings", "flexinfer.apps.status", "nodes, models and results on one screen"),
    "top": ("TopSettings", "flexinfer.apps.top", "nodes, models and events, live in the terminal"),
    "events": ("EventsSettings", "flexinfer.apps.events", "tail the bus, show its log, record it on tapes"),
    "doctor": ("DoctorSettings", "flexinfer.local.doctor", "what this machine has, and what is missing"),
    "replay": ("ReplaySettings", "flexinfer.local.replay", "what a tape's process decided, decided again"),
    "explain": ("ExplainSettings", "flexinfer.apps.explain", "why a pod was placed where it is"),
    "logs": ("LogsSettings", "flexinfer.apps.logs", "what components, models and pods wrote"),
    "clean": ("CleanSettings", "flexinfer.apps.clean", "what an uninstalled release left on nodes and models"),
    "completion": ("CompletionSettings", "", "a script for bash, zsh or fish"),
}

_BENCH = "flexinfer.apps.bench_tools"
_USAGE = "usage: flexinfer <command> [options]\n\n{}\n\nflexinfer <command> --help says more."


def _usage() -> str:
    lines = [f"  {name:<11} {text}" for name, (_, _, text) in _COMMANDS.items()]
    lines.append("  bench       run, list, show, compare: measure any server, look at results")
    return _USAGE.format("\n".join(lines))


def run_command(argv: Sequence[str]) -> int:
    """The ``flexinfer`` command; the exit code."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        print(_usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"flexinfer {__version__}")
        return 0
    command, rest = argv[0], argv[1:]
    if command == "bench":
        return _run_bench(rest)
    if command not in _COMMANDS:
        return fail(f"flexinfer: unknown command {command!r}\n{_usage()}", 2)
    if command == "completion":
        return _print_completion(rest)
    settings_class, module, _ = _COMMANDS[command]
    return _run_parsed(getattr(people, settings_class), command, rest, module)


def _run_parsed(cls: type[Settings], command: str, rest: Sequence[str], module: str) -> int:
    settings = parse(cls, f"flexinfer {command}", rest)
    logs.setup(settings.log_level if "--log-level" in rest else "error", settings.log_format)
    if isinstance(settings, LogsSettings) and settings.kubeconfig is None and (note := running.find()):
        settings = settings.model_copy(update={"kubeconfig": Path(note.kubeconfig)})
    app = importlib.import_module(module)
    if isinstance(settings, ClientSettings) and getattr(settings, "tape", None) is None:
        return _run_reaching(settings, command, app, cluster_first="--kubeconfig" in " ".join(rest))
    try:
        return run_app(lambda: app.run(settings))
    except OSError as err:
        return fail(f"flexinfer {command}: {err}")


def _run_reaching(settings: ClientSettings, command: str, app: ModuleType, *, cluster_first: bool) -> int:
    reaching = importlib.import_module("flexinfer.local.reaching")

    async def body() -> int:
        async with reaching.reached(settings, cluster_first=cluster_first) as found:
            return int(await app.run(found))

    try:
        return run_app(body)
    except (OSError, reaching.NoSystem) as err:
        return fail(f"flexinfer {command}: {err}")


def _print_completion(rest: Sequence[str]) -> int:
    settings = parse(people.CompletionSettings, "flexinfer completion", rest)
    commands = {name: (getattr(people, cls), text) for name, (cls, _, text) in _COMMANDS.items()}
    print(script(settings.shell, commands, importlib.import_module(_BENCH).ACTIONS), end="")
    return 0


def _run_bench(argv: Sequence[str]) -> int:
    module = _BENCH
    actions = importlib.import_module(module).ACTIONS
    if not argv or argv[0] not in actions:
        lines = "\n".join(f"  {name:<8} {text}" for name, (_, text) in actions.items())
        print(f"usage: flexinfer bench <action> [options]\n\n{lines}\n\nflexinfer bench <action> --help says more.")
        return 0 if argv and argv[0] in {"-h", "--help"} else 2
    return _run_parsed(actions[argv[0]][0], f"bench {argv[0]}", argv[1:], module)


def main() -> None:
    """``flexinfer``."""
    sys.exit(run_command(sys.argv[1:]))
