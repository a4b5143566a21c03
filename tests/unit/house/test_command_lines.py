"""Every executable explains itself and refuses what it does not understand."""

from pathlib import Path

import pytest

from flexinfer import __version__
from flexinfer.config.agent import AgentSettings
from flexinfer.config.bench import BenchSettings
from flexinfer.config.common import Settings, parse, parse_duration
from flexinfer.config.dashboard import DashboardSettings
from flexinfer.config.manager import ManagerSettings
from flexinfer.config.people import (
    CompletionSettings,
    DoctorSettings,
    EventsSettings,
    ExplainSettings,
    LogsSettings,
    ReplaySettings,
    StatusSettings,
    TopSettings,
    UpSettings,
)
from flexinfer.config.proxy import GlobalProxySettings, ProxySettings
from flexinfer.config.scheduler import SchedulerSettings

ALL = [
    AgentSettings, BenchSettings, ManagerSettings, ProxySettings, GlobalProxySettings, SchedulerSettings,
    UpSettings, StatusSettings, EventsSettings, ExplainSettings, DoctorSettings, ReplaySettings,
    TopSettings, LogsSettings, CompletionSettings, DashboardSettings,
]  # fmt: skip


@pytest.mark.parametrize("cls", ALL)
def test_help_names_every_flag_with_its_variable(cls: type[Settings], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(cls, "program", ["--help"], {})

    assert stop.value.code == 0
    text = capsys.readouterr().out
    for name in cls.model_fields:
        assert f"--{name.replace('_', '-')}" in text or f" {name} " in text or name.upper() in text


@pytest.mark.parametrize("cls", ALL)
def test_version_is_the_packages(cls: type[Settings], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(cls, "program", ["--version"], {})

    assert stop.value.code == 0
    assert capsys.readouterr().out == f"program {__version__}\n"


def test_flag_beats_environment_beats_default() -> None:
    assert parse(AgentSettings, "a", [], {}).interval == 30
    assert parse(AgentSettings, "a", [], {"FLEXINFER_INTERVAL": "1m"}).interval == 60
    assert parse(AgentSettings, "a", ["--interval", "90"], {"FLEXINFER_INTERVAL": "1m"}).interval == 90


def test_customary_variables_are_read() -> None:
    settings = parse(AgentSettings, "a", [], {"NODE_NAME": "n1", "NATS_URL": "nats://b:4222"})

    assert (settings.node_name, settings.nats_url) == ("n1", "nats://b:4222")


def test_a_switch_may_stand_alone_or_take_a_value() -> None:
    assert parse(AgentSettings, "a", ["--dry-run", "--once"], {}).dry_run
    assert not parse(AgentSettings, "a", ["--dry-run", "false"], {}).dry_run


@pytest.mark.parametrize(
    ("argv", "environ", "sentence"),
    [
        (["--interval", "soon"], {}, "--interval: 'soon' is not a duration"),
        (["--metrics-port", "70000"], {}, "--metrics-port: Input should be less than or equal to 65535"),
        ([], {"FLEXINFER_TELEMETRY_INTERVAL": "x"}, "FLEXINFER_TELEMETRY_INTERVAL: 'x' is not a duration"),
        (["--output", "xml"], {}, "--output: Input should be 'text', 'json' or 'yaml'"),
        (["--colour"], {}, "unrecognized arguments: --colour"),
    ],
)
def test_a_wrong_value_is_one_sentence_and_exit_code_2(
    argv: list[str], environ: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(AgentSettings, "flexinfer-agent", argv, environ)

    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_positional_arguments_have_no_flag() -> None:
    assert parse(ExplainSettings, "flexinfer explain", ["pod/x"], {}).pod == "pod/x"
    assert parse(EventsSettings, "flexinfer events", ["show", "--since", "5m"], {}).since == 300


@pytest.mark.parametrize(("text", "seconds"), [("200ms", 0.2), ("1m30s", 90), ("2h", 7200), ("1d", 86400), ("7", "7")])
def test_durations(text: str, seconds: object) -> None:
    assert parse_duration(text) == seconds


def test_paths_are_paths() -> None:
    assert parse(AgentSettings, "a", ["--kubeconfig", "/k"], {}).kubeconfig == Path("/k")
