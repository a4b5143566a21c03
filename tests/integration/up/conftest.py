"""One running demo for the tests that use it as a person would."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from driving import Up


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The demo, up to its first answer; stopped at the end of the module."""
    up = Up(tmp_path_factory.mktemp("up")).start()
    try:
        up.wait_for("✓ answer")
        yield up
    finally:
        up.stop()
