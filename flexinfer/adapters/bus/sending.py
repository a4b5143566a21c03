"""Counting and logging of events that were not sent."""

import logging

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.outbound import Unsendable

log = logging.getLogger(__name__)


def drop(reason: str) -> None:
    """One event, or its live copy, was not sent."""
    inbound.DROPPED.labels(reason=reason).inc()


def drop_unsendable(err: Unsendable) -> None:
    """An event that cannot travel at all."""
    drop(err.reason)
    log.error("not sent: %s", err)
