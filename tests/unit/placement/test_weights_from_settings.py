"""Weights come from flags, from the environment, and last from the defaults."""

import pytest

from flexinfer.apps.scheduler import weights_of
from flexinfer.config.common import parse
from flexinfer.config.scheduler import SchedulerSettings
from flexinfer.core.placement.scoring import Weights


def weights(argv=(), **environ):
    return weights_of(parse(SchedulerSettings, "flexinfer-sched", argv, environ))


def test_the_defaults():
    assert weights() == Weights(0.7, 0.2, 0.1, 0.3, 10.0)


def test_those_of_the_first_releases_as_flags():
    flags = ["--weight-tps", "0.8", "--weight-util", "0.1", "--weight-cost", "0.1"]

    assert weights(flags) == Weights(0.8, 0.1, 0.1, 0.3, 10.0)


def test_a_flag_wins_over_the_environment():
    environ = {"FLEXINFER_WEIGHT_TPS": "0.5", "FLEXINFER_WEIGHT_KV_CACHE": "0"}

    assert weights(["--weight-tps", "0.9"], **environ) == Weights(0.9, 0.2, 0.1, 0.0, 10.0)


def test_a_negative_weight_is_refused_with_a_sentence(capsys):
    with pytest.raises(SystemExit) as refused:
        weights(["--weight-util", "-1"])

    assert refused.value.code == 2
    assert "--weight-util: Input should be greater than or equal to 0" in capsys.readouterr().err
