"""Fixtures of the tests that need a real Kubernetes control plane."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kubelet.netns import missing
from rig import Rig


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One control plane for the session; each test makes a namespace of its own."""
    control_plane = Rig(tmp_path_factory.mktemp("rig"))
    try:
        yield control_plane.start()
    finally:
        control_plane.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A proof that did not run must not look like one that passed."""
    if missing():
        terminalreporter.write_line(
            f"NOT RUN: the tests that install the chart and run its pods: {missing()}", red=True
        )
