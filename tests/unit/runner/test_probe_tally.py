"""How many looks make a verdict, and which probes a container has."""

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.runner.probes import Probe, Tally, probes_of


def tally(successes: int = 1, failures: int = 3) -> Tally:
    return Tally(Probe.parse("readiness", {"successThreshold": successes, "failureThreshold": failures}))


def verdicts(counter: Tally, looks: str) -> str:
    """``+`` and ``-`` for looks; ``T`` and ``F`` where a verdict changed, ``.`` where not."""
    return "".join(("T" if counter.holds else "F") if counter.count(look == "+") else "." for look in looks)


def test_one_success_is_enough_and_three_failures_are_needed():
    assert verdicts(tally(), "--+--+---+") == "..T.....FT"


def test_a_verdict_is_told_once():
    assert verdicts(tally(), "++++") == "T..."
    assert verdicts(tally(), "------") == "..F..."


def test_successes_must_be_in_a_row():
    assert verdicts(tally(successes=2, failures=1), "+-++") == ".F.T"


@given(st.text(alphabet="+-", max_size=40), st.integers(1, 4), st.integers(1, 4))
def test_verdicts_alternate(looks, successes, failures):
    told = verdicts(tally(successes, failures), looks).replace(".", "")

    assert "TT" not in told
    assert "FF" not in told


def test_defaults_are_those_of_kubernetes():
    probe = Probe.parse("liveness", {"httpGet": {"port": 1}})

    assert (probe.delay, probe.period, probe.timeout, probe.successes, probe.failures) == (0, 10, 1, 1, 3)
    assert probe.grace is None


def test_only_declared_probes_exist():
    found = probes_of({"name": "c", "livenessProbe": {"tcpSocket": {"port": 1}}, "readinessProbe": None})

    assert set(found) == {"liveness"}
