"""docs/numbers.md says what the committed results say, and why wherever a goal is missed."""

import copy
from typing import Any

from numbers_page import PAGE, SECTIONS, WHY, page, results

WARM = "5,000 nodes on the bus to a warm view"


def test_the_page_is_that_of_the_committed_results() -> None:
    assert PAGE.read_text() == page(results()), "stale: run python -m benchmarks --page"


def test_reasons_belong_to_rows() -> None:
    rows = [row.what for section in SECTIONS for row in section.rows]
    assert set(WHY) <= set(rows)
    assert len(rows) == len(set(rows))


def test_a_result_that_is_not_there_is_said_to_be_missing() -> None:
    text = page({})
    assert "not measured yet" in text
    assert "**missed**" not in text


def with_warm(seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = copy.deepcopy(results())
    found["extender_warm"] = {"snapshot_to_warm_seconds": {"median": seconds}}
    return found


def test_a_figure_beyond_its_goal_is_missed_and_explained() -> None:
    text = page(with_warm(9.0))
    assert f"| {WARM} | ≤ 0.5 s | 9.00 s |  | **missed** |" in text
    assert f"- *{WARM}* is missed. {WHY[WARM]}" in text


def test_a_figure_within_its_goal_needs_no_reason() -> None:
    text = page(with_warm(0.1))
    assert f"| {WARM} | ≤ 0.5 s | 0.10 s |  | met |" in text
    assert WHY[WARM] not in text
