"""Logs: JSON lines in a pod, readable lines on a terminal; repeated lines are held back."""

import logging
import os
import sys
from datetime import UTC, datetime

import msgspec

_STANDARD = frozenset(vars(logging.makeLogRecord({})))


class JsonFormatter(logging.Formatter):
    """One JSON object per line; ``extra=`` fields become keys."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({k: v for k, v in vars(record).items() if k not in _STANDARD and k != "message"})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """``12:34:56 INFO  manager: message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(
            f" {k}={v}" for k, v in vars(record).items() if k not in _STANDARD and k not in {"message", "taskName"}
        )
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        name = record.name.removeprefix("flexinfer.")
        text = f"{when} {record.levelname:<7} {name}: {record.getMessage()}{extra}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class Once(logging.Filter):
    """Lets each (logger, template) through at most once per ``period`` seconds and says how many were held back.

    A bus roll-out once produced 200,000 error lines in minutes elsewhere; state changes deserve one line each.
    Records at DEBUG and with ``extra={"always": True}`` are not limited.
    """

    def __init__(self, period: float = 1.0, burst: int = 20) -> None:
        super().__init__()
        self._period = period
        self._burst = burst
        self._seen: dict[tuple[str, str], tuple[float, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        key = (record.name, str(record.msg))
        start, passed, held = self._seen.get(key, (record.created, 0, 0))
        if record.created - start >= self._period:
            start, passed, previous = record.created, 0, held
            held = 0
            if previous:
                record.msg = f"{record.msg} ({previous} like this held back)"
        if passed >= self._burst:
            self._seen[key] = (start, passed, held + 1)
            return False
        if len(self._seen) > 10_000:
            self._seen.clear()
        self._seen[key] = (start, passed + 1, held)
        return True


def setup(level: str = "info", style: str = "auto") -> None:
    """Configure the root logger. ``style``: ``auto`` (JSON unless stderr is a terminal), ``json`` or ``text``."""
    as_json = style == "json" or (
        style == "auto" and not sys.stderr.isatty() and "FLEXINFER_LOG_TEXT" not in os.environ
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    handler.addFilter(Once())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn.access", "aiohttp.access", "nats"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
