"""One page of a real browser for each test, or words that it was not tried in one."""

import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.integration.dashboard.browser import CHROMIUM, Browser, browser


@pytest.fixture(scope="module", autouse=True)
def needs_a_browser(request: pytest.FixtureRequest) -> None:
    if CHROMIUM is None:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            sys.stdout.write("\nNOT RUN: the dashboard in a browser, because there is no chromium\n")
        pytest.skip("no chromium on PATH: the dashboard was not tried in a browser")


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Browser]:
    async with browser(tmp_path / "profile") as started:
        yield started
