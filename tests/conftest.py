"""Properties are about results, not about the time a busy machine takes for them; no test sees another's logging."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """What a command under test sets up for its process ends with the test."""
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    levels = {name: log.level for name, log in root.manager.loggerDict.items() if isinstance(log, logging.Logger)}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.disable(disabled)
    for name, log in root.manager.loggerDict.items():
        if isinstance(log, logging.Logger):
            log.setLevel(levels.get(name, logging.NOTSET))
