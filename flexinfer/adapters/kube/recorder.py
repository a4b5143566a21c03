"""Kubernetes Events (events.k8s.io/v1): what people see in ``kubectl describe``.

Writing them never holds up or fails the work they report: ``emit`` only queues, repeats become one Event with a
``series`` count, and what cannot be written is counted and dropped.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from flexinfer.adapters.kube.times import micro_time
from flexinfer.contracts.kubernetes import EVENTS, Object
from flexinfer.ports import Clock, KubeApi, KubeError, KubeUnavailable, NotFound
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_WRITTEN = metrics.counter("flexinfer_kube_events_total", "Kubernetes Events written.", ("type",))
_DROPPED = metrics.counter("flexinfer_kube_events_dropped_total", "Kubernetes Events given up.", ("why",))

SERIES_SECONDS = 360.0  # client-go's: a repeat later than this is a new Event
REPEAT_SECONDS = 5.0  # least time between two writes of one series
MAX_PENDING = 8000  # a thousand models that start together have four things each to tell
MAX_KNOWN = 12_000
MAX_NOTE = 1024  # the API's limit, bytes

EventType = Literal["Normal", "Warning"]
_Key = tuple[str, str, str, str, EventType, str, str]


@dataclass(slots=True)
class _Series:
    """One Event and its repeats; ``written``: how many of ``count`` the API knows."""

    key: _Key
    reference: Object
    name: str
    count: int
    last: float
    written: int = 0
    due: float = 0.0


class EventRecorder:
    """Queue of Events about objects. Somebody runs ``run()``; ``emit`` may be called before and never raises."""

    def __init__(self, api: KubeApi, component: str, clock: Clock, instance: str = "") -> None:
        self._api = api
        self._component = component
        self._instance = instance or component
        self._clock = clock
        self._known: OrderedDict[_Key, _Series] = OrderedDict()
        self._pending: OrderedDict[_Key, None] = OrderedDict()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._held_until = 0.0
        self._failures = 0

    def emit(self, regarding: Object, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the API's own name
        """Report ``reason`` (CamelCase, up to 128 characters) about an object with apiVersion, kind and metadata."""
        reference = _reference(regarding)
        note = message.encode()[:MAX_NOTE].decode(errors="ignore")
        key: _Key = (
            reference["kind"], reference["namespace"], reference["name"], reference["uid"], type, reason[:128], note,
        )  # fmt: skip
        now = self._clock.now()
        series = self._known.get(key)
        if series is None or now - series.last > SERIES_SECONDS:
            series = self._known[key] = _Series(key, reference, _new_name(reference), count=0, last=now)
        series.count += 1
        series.last = now
        self._known.move_to_end(key)
        if key not in self._pending and len(self._pending) >= MAX_PENDING:
            _DROPPED.labels(why="queue full").inc()
            return
        self._pending[key] = None
        self._forget_old()
        self._wake.set()

    async def run(self) -> None:
        """Write what is queued, until cancelled."""
        while True:
            series, wait = self._next()
            if series is not None and wait <= 0:
                await self._write(series)
                continue
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if series is None else wait):
                    await self._wake.wait()

    async def flush(self, limit: float = 2.0) -> None:
        """Try once to write everything that is queued, for at most ``limit`` seconds; for the end of a process."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                for key in list(self._pending):
                    await self._write(self._known[key])

    def _next(self) -> tuple[_Series | None, float]:
        """The first pending series that is due, else the one that is next, and in how many seconds."""
        now = self._clock.monotonic()
        soonest: _Series | None = None
        for series in map(self._known.__getitem__, self._pending):
            if series.due <= now:
                return series, self._held_until - now
            if soonest is None or series.due < soonest.due:
                soonest = series
        return soonest, max(soonest.due, self._held_until) - now if soonest else 0.0

    def _forget_old(self) -> None:
        if len(self._known) <= MAX_KNOWN:
            return
        for key in [key for key in self._known if key not in self._pending][: MAX_KNOWN // 10]:
            del self._known[key]

    async def _write(self, series: _Series) -> None:
        async with self._writing:  # a flush comes beside what is under way: one Event would be made twice
            if series.key in self._pending:
                await self._send(series)

    async def _send(self, series: _Series) -> None:
        # Taken off first: an emit during the write queues the series again, to its due time.
        del self._pending[series.key]
        count = series.count
        try:
            if series.written:
                body = {"series": {"count": count, "lastObservedTime": micro_time(series.last)}}
                await self._api.patch(EVENTS, series.name, body, _namespace(series), kind="merge")
            else:
                await self._api.create(EVENTS, self._event(series, count), _namespace(series))
        except KubeUnavailable as err:
            self._hold(series, err.retry_after)
            return
        except NotFound:
            if not series.written:
                _DROPPED.labels(why="refused").inc()
                return
            # The server keeps Events for an hour or so: start a new one.
            series.name, series.written, series.count = _new_name(series.reference), 0, 1
            self._pending[series.key] = None
            return
        except KubeError as err:
            if not series.written and err.reason == "AlreadyExists":
                self._arrived(series, count)
                return
            _DROPPED.labels(why="refused").inc()
            log.warning("event %s about %s was refused: %s", series.key[5], series.reference["name"], err)
        else:
            series.written = count
            _WRITTEN.labels(type=series.key[4]).inc()
        self._failures = 0
        series.due = self._clock.monotonic() + REPEAT_SECONDS

    def _arrived(self, series: _Series, count: int) -> None:
        """The name is random, so what exists is this Event: an earlier try was stored and only its answer was lost."""
        series.written = 1
        if count > 1:
            self._pending[series.key] = None
        _WRITTEN.labels(type=series.key[4]).inc()

    def _hold(self, series: _Series, asked: float | None) -> None:
        """The API is away: keep the series, and wait before trying any."""
        self._pending[series.key] = None
        self._pending.move_to_end(series.key, last=False)
        self._held_until = self._clock.monotonic() + max(min(30.0, 2.0**self._failures), asked or 0.0)
        self._failures = min(self._failures + 1, 5)

    def _event(self, series: _Series, count: int) -> Object:
        when = micro_time(series.last)
        event: Object = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": _namespace(series)},
            "eventTime": when,
            "reportingController": f"flexinfer.ai/{self._component}",
            "reportingInstance": self._instance[:128],
            "action": series.key[5],
            "reason": series.key[5],
            "type": series.key[4],
            "note": series.key[6],
            "regarding": {name: value for name, value in series.reference.items() if value},
        }
        if count > 1:
            event["series"] = {"count": count, "lastObservedTime": when}
        return event


def _new_name(reference: Object) -> str:
    return f"{reference['name'][:230]}.{secrets.token_hex(8)}"


def _namespace(series: _Series) -> str:
    # Events about cluster-scoped objects live in "default", as the API demands.
    return str(series.reference["namespace"] or "default")


def _reference(regarding: Object) -> dict[str, str]:
    meta = regarding.get("metadata") or {}
    return {
        "apiVersion": str(regarding.get("apiVersion") or ""),
        "kind": str(regarding.get("kind") or ""),
        "namespace": str(meta.get("namespace") or ""),
        "name": str(meta.get("name") or ""),
        "uid": str(meta.get("uid") or ""),
        "resourceVersion": str(meta.get("resourceVersion") or ""),
    }
