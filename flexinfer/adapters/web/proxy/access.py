"""The access log: a few JSON lines per second on the logger ``flexinfer.access``, and the same as events.

Bodies, keys and query strings are never part of it.
"""

import logging
from collections.abc import Callable

from flexinfer.adapters.web.proxy.front import Job
from flexinfer.contracts.events import RequestServed
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.sampling import Sampler

log = logging.getLogger("flexinfer.access")

_PATH = 200


class AccessLog:
    """``publish`` takes the event; it must not block."""

    def __init__(self, proxy: str, rate: float, publish: Callable[[RequestServed], None]) -> None:
        self._proxy = proxy
        self._sampler = Sampler(rate)
        self._publish = publish

    @property
    def left_out(self) -> int:
        """Requests since the last line."""
        return self._sampler.left_out

    def note(self, job: Job, refusal: Refusal | None, now: float) -> None:
        """A request ended."""
        left_out = self._sampler.takes(now)
        if left_out is None:
            return
        line = self._line(job, refusal, now, left_out)
        self._publish(line)
        fields = {name: getattr(line, name) for name in line.__struct_fields__}
        log.info("%s %s %d", line.method, line.path, line.status, extra={**fields, "always": True})

    def _line(self, job: Job, refusal: Refusal | None, now: float, left_out: int) -> RequestServed:
        return RequestServed(
            proxy=self._proxy,
            request_id=job.id.decode(),
            method=job.request.method,
            path=job.target.path[:_PATH],
            status=job.status,
            model=job.key,
            endpoint=job.endpoint,
            reason=refusal.code if refusal else job.reason,
            duration_seconds=max(0.0, now - job.received),
            first_byte_seconds=max(0.0, job.first_byte - job.received) if job.first_byte else None,
            request_bytes=job.request.size,
            answer_bytes=job.bytes_out,
            completion_tokens=job.tokens,
            left_out=left_out,
        )
