"""Entry points: argv of each executable, and the ``flexinfer`` command for people."""

import importlib
import sys
from collections.abc import Sequence

from flexinfer import __version__
from flexinfer.config import people
from flexinfer.config.common import Settings, parse
from flexinfer.config.people import ClientSettings
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
    "events": ("EventsSettings", "flexinfer.apps.events", "follow the bus (tail) or read its log (show)"),
    "doctor": ("DoctorSettings", "flexinfer.local.doctor", "what this machine has, and what is missing"),
    "replay": ("ReplaySettings", "flexinfer.local.replay", "what a tape's process decided, decided again"),
    "explain": ("ExplainSettings", "flexinfer.apps.explain", "why a pod was placed where it is"),
}

_USAGE = "usage: flexinfer <command> [options]\n\n{}\n\nflexinfer <command> --help says more."


def _usage() -> str:
    lines = [f"  {name:<9} {text}" for name, (_, _, text) in _COMMANDS.items()]
    lines.append("  bench     run, list, show, compare: measure any server, look at results")
    return _USAGE.format("\n".join(lines))


def _located(settings: ClientSettings, command: str) -> ClientSettings | None:
    """The settings with the bus address of the system that runs on this machine, if none was given."""
    if settings.nats_url:
        return settings
    note = running.find()
    if note is None:
        fail(
            f"flexinfer {command}: no flexinfer up is running on this machine; "
            "start one (make demo) or give --nats-url or NATS_URL"
        )
        return None
    return settings.model_copy(update={"nats_url": note.nats_url, "cluster": note.cluster})


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
    settings_class, module, _ = _COMMANDS[command]
    return _run_parsed(getattr(people, settings_class), command, rest, module)


def _run_parsed(cls: type[Settings], command: str, rest: Sequence[str], module: str) -> int:
    settings = parse(cls, f"flexinfer {command}", rest)
    logs.setup(settings.log_level if "--log-level" in rest else "error", settings.log_format)
    if isinstance(settings, ClientSettings) and getattr(settings, "tape", None) is None:
        located = _located(settings, command)
        if located is None:
            return 1
        settings = located
    app = importlib.import_module(module)
    try:
        return run_app(lambda: app.run(settings))
    except OSError as err:
        return fail(f"flexinfer {command}: {err}")


def _run_bench(argv: Sequence[str]) -> int:
    module = "flexinfer.apps.bench_tools"
    actions = importlib.import_module(module).ACTIONS
    if not argv or argv[0] not in actions:
        lines = "\n".join(f"  {name:<8} {text}" for name, (_, text) in actions.items())
        print(f"usage: flexinfer bench <action> [options]\n\n{lines}\n\nflexinfer bench <action> --help says more.")
        return 0 if argv and argv[0] in {"-h", "--help"} else 2
    return _run_parsed(actions[argv[0]][0], f"bench {argv[0]}", argv[1:], module)


def main() -> None:
    """``flexinfer``."""
    sys.exit(run_command(sys.argv[1:]))
