"""Entry points: argv of each executable, and the ``flexinfer`` command for people."""

import importlib
import sys
from collections.abc import Sequence

from flexinfer.config.common import parse
from flexinfer.runtime.process import fail, run_app
from flexinfer.telemetry import logs

# program -> (settings module, settings class, app module); imported on use, so that --help is quick.
_PROGRAMS = {
    "flexinfer-agent": ("flexinfer.config.agent", "AgentSettings", "flexinfer.apps.agent"),
    "flexinfer-manager": ("flexinfer.config.manager", "ManagerSettings", "flexinfer.apps.manager"),
    "flexinfer-bench": ("flexinfer.config.bench", "BenchSettings", "flexinfer.apps.bench"),
    "flexinfer-sched": ("flexinfer.config.scheduler", "SchedulerSettings", "flexinfer.apps.scheduler"),
    "flexinfer-proxy": ("flexinfer.config.proxy", "ProxySettings", "flexinfer.apps.proxy"),
    "flexinfer-global-proxy": ("flexinfer.config.proxy", "GlobalProxySettings", "flexinfer.apps.global_proxy"),
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


def scheduler() -> None:
    """``flexinfer-sched``."""
    sys.exit(run_program("flexinfer-sched"))


def proxy() -> None:
    """``flexinfer-proxy``."""
    sys.exit(run_program("flexinfer-proxy"))


def global_proxy() -> None:
    """``flexinfer-global-proxy``."""
    sys.exit(run_program("flexinfer-global-proxy"))


def main() -> None:
    """``flexinfer``."""
    sys.exit(0)
