"""The extender as raw ASGI: decode, decide in memory, encode. Nothing here waits for anything but the request.

kube-scheduler takes any status but 200 as a failure it cannot read, so refusals are 200 with ``Error``.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

import msgspec

from flexinfer.adapters.web import extender_answers as answers
from flexinfer.adapters.web import extender_wire as wire
from flexinfer.adapters.web.ops import Report, answer_ops
from flexinfer.adapters.web.serve import ClientGone, Receive, Scope, Send, respond
from flexinfer.core.placement.checks import REASONS, Reason
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.explanation import parse_weights, what_if
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_REQUESTS = metrics.counter(
    "flexinfer_scheduler_requests_total", "Extender requests by phase and result.", ("phase", "result")
)
_SECONDS = metrics.histogram(
    "flexinfer_scheduler_request_seconds",
    "Time from the whole request received to the answer made.",
    ("phase",),
    (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
_REJECTED = metrics.counter("flexinfer_scheduler_rejected_nodes_total", "Nodes filtered out, by reason.", ("reason",))
_LAST_CALL = metrics.gauge(
    "flexinfer_scheduler_last_request_timestamp_seconds", "When kube-scheduler last called; 0: never.", ("phase",)
)

# Looking a label set up costs more than counting; each request counts several.
_SECONDS_OF = {phase: _SECONDS.labels(phase) for phase in ("filter", "prioritize", "preempt")}
_LAST_CALL_OF = {phase: _LAST_CALL.labels(phase) for phase in _SECONDS_OF}
_REQUESTS_OF = {
    (phase, result): _REQUESTS.labels(phase, result)
    for phase in _SECONDS_OF
    for result in ("ok", "rejected", "bad", "cold", "large")
}
_REJECTED_OF = {reason.code: _REJECTED.labels(reason.code) for reason in REASONS}

PHASES = {"/filter": "filter", "/prioritize": "prioritize", "/score": "prioritize", "/preempt": "preempt"}


def _nothing() -> None:
    """Nobody waits for answers to leave."""


@dataclass(frozen=True, slots=True)
class Process:
    """What the extender asks of the process it runs in.

    ``cold`` says why the view cannot answer yet, None when it can; ``after`` is called when an answer has left;
    ``record`` gets every request with the time it is answered as of.
    """

    cold: Callable[[], str | None]
    report: Report
    now: Callable[[], float]
    after: Callable[[], None] = _nothing
    record: Callable[[float, str, bytes], None] | None = None


class ExtenderApp:
    """The ASGI application; ``max_body`` in bytes."""

    def __init__(self, desk: Desk, process: Process, max_body: int) -> None:
        self._desk = desk
        self._process = process
        self._max_body = max_body
        self._dialogue = wire.Dialogue()
        self._pieces = answers.Pieces(desk.roster)
        self._shapes: set[str] = set()
        self._rejected: list[Mapping[Reason, int]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"].rstrip("/")
        phase = PHASES.get(path)
        if phase is not None and scope["method"] == "POST":
            await self._post(phase, receive, send)
        elif path == "/explain" and scope["method"] == "GET":
            await self._explain(scope, send)
        elif not await answer_ops(path, send, self._process.report):
            await respond(send, 404, b'{"error":"not found: POST /filter, /prioritize, /preempt or GET /explain"}')

    async def _post(self, phase: str, receive: Receive, send: Send) -> None:
        body = await read_or_drain(receive, self._max_body)
        now = self._process.now()
        if self._process.record is not None and body is not None:
            self._process.record(now, phase, body)
        began = time.perf_counter()
        answer, result = self.answer(phase, body, now)
        took = time.perf_counter() - began
        try:
            await respond(send, 200, answer)
        finally:
            # Nobody waits for the figures.
            self._count(phase, result, took, now)
        self._process.after()

    def _count(self, phase: str, result: str, took: float, now: float) -> None:
        _SECONDS_OF[phase].observe(took)
        _REQUESTS_OF[phase, result].inc()
        _LAST_CALL_OF[phase].set(now)
        while self._rejected:
            for reason, count in self._rejected.pop().items():
                _REJECTED_OF[reason.code].inc(count)

    def answer(self, phase: str, body: bytes | None, now: float) -> tuple[bytes, str]:
        """The answer as of ``now``, and what to count it as: ok, rejected, bad, cold or large (``body`` None)."""
        if body is None:
            return self._refusal(phase, f"flexinfer: request larger than {self._max_body} bytes"), "large"
        reason = self._process.cold()
        if reason is not None:
            return self._refusal(phase, f"flexinfer: {reason}"), "cold"
        try:
            if phase == "filter":
                return self._filter(body, now)
            if phase == "prioritize":
                return self._prioritize(body, now), "ok"
            return self._preempt(body, now), "ok"
        except wire.BadRequest as err:
            log.warning("bad %s request: %s", phase, err)
            return self._refusal(phase, f"flexinfer: {err}"), "bad"

    def _refusal(self, phase: str, message: str) -> bytes:
        if phase == "filter":
            return answers.filter_error(message)
        return b"[]" if phase == "prioritize" else answers.preemption_answer({})

    def _filter(self, body: bytes, now: float) -> tuple[bytes, str]:
        query = self._dialogue.read(body, self._desk.roster)
        self._say_shape(query)
        found = self._desk.filter(query.pod, query.asked, now)
        if found.keeps is not None:
            self._rejected.append(found.reasons)
        result = "ok" if len(found.survivors) or not len(query.asked) else "rejected"
        # What was answered holds for the same list while no verdict changes, whichever pod asks.
        if found.encoded is not None and query.items is None:
            answer: bytes = found.encoded
            return answer, result
        answer, names = answers.filter_answer(query, found, self._pieces_now())
        if query.items is None:
            found.encoded = answer
            if names is not None:
                self._dialogue.remember(names, found.survivors)
        return answer, result

    def _prioritize(self, body: bytes, now: float) -> bytes:
        query = self._dialogue.read(body, self._desk.roster)
        scores = self._desk.prioritize(query.pod, query.asked, now)
        return self._pieces_now().priorities(scores)

    def _pieces_now(self) -> answers.Pieces:
        if self._pieces.roster is not self._desk.roster:
            self._pieces = answers.Pieces(self._desk.roster)
        return self._pieces

    def _preempt(self, body: bytes, now: float) -> bytes:
        pod, candidates = wire.read_preemption(body)
        victims = {name: wire.uids(found) for name, found in candidates.items()}
        kept = self._desk.preempt(pod, victims, now)
        return answers.preemption_answer({name: candidates[name] for name in kept})

    def _say_shape(self, query: wire.NodeQuery) -> None:
        shape = (
            "node names (nodeCacheCapable: true)" if query.items is None else "whole nodes (nodeCacheCapable: false)"
        )
        if shape not in self._shapes:
            self._shapes.add(shape)
            log.info("kube-scheduler sends %s", shape)

    async def _explain(self, scope: Scope, send: Send) -> None:
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        namespace, pod = asked.get("namespace", ["default"])[0], asked.get("pod", [""])[0]
        found = self._desk.explain(namespace, pod.removeprefix("pod/"))
        if found is None:
            await respond(
                send, 404, msgspec.json.encode({"error": f"no decision about {namespace}/{pod} is kept here"})
            )
            return
        try:
            weights = parse_weights(asked.get("what-if", []))
            answer = what_if(found, weights) if weights else found
        except ValueError as err:
            await respond(send, 400, msgspec.json.encode({"error": str(err)}))
            return
        await respond(send, 200, msgspec.json.encode(answer))


async def read_or_drain(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if it is larger than ``limit``, and then as much again is read, so that the sender listens.

    Raises ClientGone.
    """
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        more = bool(message.get("more_body")) and size <= 2 * limit
        if size > limit:
            parts.clear()
        else:
            parts.append(chunk)
    return None if size > limit else parts[0] if len(parts) == 1 else b"".join(parts)
