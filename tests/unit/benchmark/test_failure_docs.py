"""The documentation lists every reason a run can fail for, with its exit code and remedy."""

from pathlib import Path

from flexinfer.core.benchmark.failures import reasons

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"


def test_the_table_of_reasons_is_complete():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line.split("|")[2]]
    told = {line.split("`")[1]: line for line in rows if line.split("|")[1].strip().isdigit()}
    assert set(told) == set(reasons())
    for reason, kind in reasons().items():
        assert told[reason] == f"| {kind.exit_code} | `{reason}` | {kind.remedy} |"
