"""Engines that other installed packages bring."""

import logging
from importlib.metadata import entry_points

from flexinfer.core.lifecycle.engines import GROUP, register

log = logging.getLogger(__name__)


def load_engines() -> tuple[str, ...]:
    """Register what the entry points of the group name; the names that are usable now. One that cannot be imported,
    is no Engine or takes a name that is there already is logged and left out."""
    found: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            engine = entry.load()
            register(engine)
        except (ImportError, AttributeError, TypeError, ValueError) as err:
            log.error("engine %s of %s is left out: %s", entry.name, entry.value, err)  # noqa: TRY400 - another's fault
            continue
        found.append(engine.name)
    return tuple(found)
