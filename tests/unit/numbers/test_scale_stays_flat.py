"""The work an event causes does not grow with the fleet or with the number of models: counted in function calls, which
no other load of the machine changes."""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from manager_event_cost import KINDS as OF_MODELS
from manager_event_cost import Paper
from scale_crowd import Agent, messages, publication
from scale_fleet import KINDS as OF_NODES
from scale_fleet import Replica
from svg_charts import dots, lines

from flexinfer.contracts.envelope import decode_event
from flexinfer.core.lifecycle.fold_events import fold_event

NOW = 1_800_000_000.0


def calls(work: Callable[[], Any]) -> int:
    """Python and C functions called."""
    found: Counter[str] = Counter()

    def count(_frame: Any, event: str, _arg: Any) -> None:
        found[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found["call"] + found["c_call"]


@pytest.mark.parametrize("kind", OF_NODES)
def test_an_event_costs_as_much_in_a_large_fleet(kind: str) -> None:
    counts = []
    for size in (120, 600):
        replica = Replica(size, lambda: NOW)
        for number in range(4):
            OF_NODES[kind](replica, number)()
        counts.append(calls(OF_NODES[kind](replica, 4)))
    assert counts[1] <= 1.2 * counts[0], counts


@pytest.mark.parametrize("kind", OF_MODELS)
def test_an_event_costs_the_manager_as_much_with_many_models(kind: str, papers: tuple[Paper, Paper]) -> None:
    counts = []
    for paper in papers:
        for number in range(3):
            paper.now += 1.0
            event = paper.mint.mint(OF_MODELS[kind](number))
            counted = calls(lambda paper=paper, event=event: paper.decide(fold_event(paper.view, event, paper.now)))
        counts.append(counted)
    assert counts[1] <= 1.2 * counts[0], counts


@pytest.fixture(scope="module")
def papers() -> tuple[Paper, Paper]:
    """The fleet has 50 nodes in both."""
    return Paper(20), Paper(100)


def test_a_simulated_agent_says_what_a_real_one_says() -> None:
    event = Agent("n.1", 2, 1.0).hardware()
    sent = messages(event, b"_INBOX.x", sampled=True)
    state, _, rest = sent.partition(b"\r\n")
    assert state.startswith(b"PUB $KV.flexinfer_nodes.n_1.hardware _INBOX.x ")
    size = int(state.rpartition(b" ")[2])
    assert decode_event(rest[:size]) == event
    assert rest[size + 2 :].startswith(b"PUB flexinfer.v1.default.node.n_1.hardware ")


def test_a_message_is_written_as_the_protocol_wants_it() -> None:
    assert publication("a.b", b"xyz") == b"PUB a.b 3\r\nxyz\r\n"


def test_plots_are_pictures() -> None:
    rows = [("5 nodes", {"ours": 0.9, "<other>": 1.0}), ("50 nodes", {"ours": 0.95, "<other>": 0.7})]
    for text in (dots("shares", rows, 0.95), lines([("µs", {"event": [(100, 5.0), (5000, 6.0)]})], "nodes")):
        assert ET.fromstring(text).tag.endswith("svg")
