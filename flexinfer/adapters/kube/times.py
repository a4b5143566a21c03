"""Timestamps as the Kubernetes API writes and reads them."""

import re
from datetime import UTC, datetime


def micro_time(now: float) -> str:
    """MicroTime: RFC 3339 in UTC with six decimals; ``now`` in Unix seconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time(now: float) -> str:
    """Time: RFC 3339 in UTC, whole seconds; ``now`` in Unix seconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: object) -> float | None:
    """Unix seconds of either form, None for anything else."""
    if not isinstance(text, str) or not re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", text
    ):
        return None
    # fromisoformat takes at most six decimals.
    text = re.sub(r"(\.\d{6})\d+", r"\1", text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
