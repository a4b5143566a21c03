"""How much history the bus keeps is the operator's choice; state keeps its own room."""

from flexinfer.adapters.bus.nats import Limits
from flexinfer.apps.manager import limits_of
from flexinfer.config.common import parse
from flexinfer.config.manager import ManagerSettings


def test_the_log_is_as_large_as_the_bus_makes_it_by_itself() -> None:
    assert limits_of(parse(ManagerSettings, "flexinfer-manager", [], {})) == Limits()


def test_a_larger_log_takes_nothing_from_state() -> None:
    settings = parse(ManagerSettings, "flexinfer-manager", ["--bus-log-mib", "7300"], {})
    assert limits_of(settings) == Limits(log=7300 << 20)
