"""A proof that did not run must not look like one that passed."""

import pytest

from tests.cluster.kubelet.netns import missing


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if missing():
        terminalreporter.write_line(f"NOT RUN: partitions, and a full disk under the bus: {missing()}", red=True)
