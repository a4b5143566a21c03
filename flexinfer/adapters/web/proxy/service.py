"""The proxy: from a client's request to one replica's answer."""

from flexinfer.adapters.web.proxy import figures, listing
from flexinfer.adapters.web.proxy.connections import Connections
from flexinfer.adapters.web.proxy.figures import ModelFigures
from flexinfer.adapters.web.proxy.front import Front, Job, Report
from flexinfer.adapters.web.proxy.relay import Outgoing, relay
from flexinfer.adapters.web.proxy.request import Header
from flexinfer.adapters.web.proxy.upstream import Connection, Head, UpstreamFailed
from flexinfer.adapters.web.proxy.waiting import WaitingRoom
from flexinfer.contracts.events import ModelEndpoint
from flexinfer.core.routing import target
from flexinfer.core.routing.directory import Directory
from flexinfer.core.routing.refusal import Code, Refusal
from flexinfer.core.routing.replicas import Choice
from flexinfer.core.routing.table import key_of
from flexinfer.core.routing.usage import Usage
from flexinfer.ports import Clock

_OWN = frozenset({b"x-model-id", b"x-flexinfer-background", b"x-flexinfer-endpoint", b"x-flexinfer-reason"})
_TRY_ANOTHER = frozenset({429, 500, 502, 503, 504})
_MOST_ANSWERS = 3  # answers asked of different replicas for one request; refused connections do not count


class ProxyService:
    """Answers every request of a listener."""

    def __init__(
        self, directory: Directory, connections: Connections, room: WaitingRoom, clock: Clock, report: Report
    ) -> None:
        self._directory = directory
        self._connections = connections
        self._room = room
        self._clock = clock
        self._figures: dict[str, ModelFigures] = {}
        self._started = int(clock.now())
        self.handle = Front(clock, report, self._answer, self._done, self._refresh).handle

    # --- the table moved -------------------------------------------------------------------------------------

    def moved(self, keys: tuple[str, ...]) -> None:
        """Routes changed: requests that wait look again, and what is gone is let go."""
        for key in keys:
            self._room.wake(key)
            if key not in self._directory.table.routes:
                self._room.forget(key)
                if gone := self._figures.pop(key, None):
                    gone.forget()

    def refused(self, why: Refusal) -> None:
        """The listener answered something that was no request."""
        figures.REFUSED.labels(why.code).inc()

    # --- one request -----------------------------------------------------------------------------------------

    def _done(self, job: Job, refusal: Refusal | None) -> None:
        if refusal is not None:
            figures.REFUSED.labels(refusal.code).inc()
        if not job.status:
            figures.CANCELLED.labels(job.key).inc()
            return
        figured = self._figures_of(job.key)
        figured.answered(job.status)
        figured.duration.observe(max(0.0, self._clock.now() - job.received))

    async def _answer(self, job: Job) -> None:
        name = job.models_path
        if name is not None:
            self._answer_models(job, name)
            return
        body = await job.request.body()
        spec, body = self._route(job, body)
        job.key = key_of(spec)
        plain = job.request.old
        out = Outgoing(job.request, job.target.path, body, request_id=job.id, dropped=_OWN, plain=plain)
        usage = self._directory.used(job.key)
        usage.begin(job.received, background=job.background)
        try:
            await self._forward(job, spec, out, usage)
        finally:
            usage.end(self._clock.now(), background=job.background)

    def _route(self, job: Job, body: bytes) -> tuple[ModelEndpoint, bytes]:
        """Which model is asked for, and the body as its engine wants it. Raises Refusal."""
        name = job.model_asked(body)
        self._warm()
        spec = self._directory.table.resolve(name)
        if spec.served_model and not (job.in_body and name == spec.served_model):
            if job.as_json:
                body = target.with_model(body, spec.served_model)
            elif job.boundary is not None:
                body = target.with_multipart_model(body, job.boundary, spec.served_model)
        return spec, body

    def _warm(self) -> None:
        if not self._directory.warm:
            raise Refusal(503, "not_ready", "the proxy has no routing table yet", retry_after=2)

    async def _forward(self, job: Job, spec: ModelEndpoint, out: Outgoing, usage: Usage) -> None:
        tried: set[tuple[str, str]] = set()
        answers = 0
        failure: UpstreamFailed | None = None
        while True:
            pool = self._directory.pools.get(job.key)
            if pool is None:
                raise Refusal(404, "model_not_found", f"the model '{job.key}' was removed", param="model")
            choice = pool.choose(tried)
            if choice is None and failure is not None:
                raise _engine_refusal(job.key, failure)
            if choice is None:
                await self._room.wait(spec, job.received, background=job.background)
                spec = self._directory.table.routes.get(job.key, spec)
                continue
            tried.add(choice.replica.key)
            choice.replica.outstanding += 1
            try:
                connection, head = await self._connections.ask(
                    choice.replica.url, out.head, out.body, bodiless=out.bodiless, plain=out.plain
                )
                if head.status in _TRY_ANOTHER and answers + 1 < _MOST_ANSWERS and pool.has_other(tried):
                    answers += 1
                    figures.RETRIES.labels(job.key, "status").inc()
                    self._connections.drop(connection)
                    continue
                await self._relay(job, choice, connection, head, usage)
                return
            except UpstreamFailed as err:
                if job.client.began:
                    raise
                answers += err.stage != "connect"
                if err.stage == "timeout" or answers >= _MOST_ANSWERS:
                    raise _engine_refusal(job.key, err) from err
                failure = err
                figures.RETRIES.labels(job.key, err.stage).inc()
            finally:
                choice.replica.outstanding -= 1

    async def _relay(self, job: Job, choice: Choice, connection: Connection, head: Head, usage: Usage) -> None:
        figured = self._figures_of(job.key)
        figured.first_byte.observe(max(0.0, self._clock.now() - job.received))
        extra: list[Header] = [
            (b"x-request-id", job.id),
            (b"x-flexinfer-endpoint", choice.replica.pod.encode()),
            (b"x-flexinfer-reason", choice.reason.encode()),
        ]
        stream = True
        try:
            counting = await relay(job.client, job.request, connection, head, extra, usage)
            job.status = head.status
            stream = counting.stream
            figured.tokens.inc(counting.counted)
        except UpstreamFailed:
            # The client has a part of the answer: only a cut connection tells it that the rest is missing.
            figures.BROKEN.labels(job.key).inc()
            job.status = 502
            job.client.abort()
        finally:
            self._connections.give_back(choice.replica.url, connection, stream=stream)

    # --- what the proxy answers itself -----------------------------------------------------------------------

    def _answer_models(self, job: Job, name: str) -> None:
        self._warm()
        job.respond_json(
            listing.one_model(self._directory, name, self._started)
            if name
            else listing.model_list(self._directory, self._started)
        )

    def _refresh(self) -> None:
        """Gauges are read from the state they describe when somebody looks."""
        for key in self._directory.table.routes:
            usage = self._directory.usage.get(key)
            demand = self._room.demands.get(key)
            figures.OUTSTANDING.labels(key).set(usage.outstanding if usage else 0)
            figures.WAITING.labels(key).set(len(demand.since) if demand else 0)
        figures.ENGINES.set(self._connections.open)

    def _figures_of(self, key: str) -> ModelFigures:
        found = self._figures.get(key)
        if found is None:
            found = self._figures[key] = ModelFigures(key)
        return found


def _engine_refusal(key: str, err: UpstreamFailed) -> Refusal:
    if err.stage == "timeout":
        return Refusal(504, "engine_timeout", f"the engine of '{key}' did not answer in time: {err}")
    code: Code = "engine_unreachable" if err.stage == "connect" else "engine_failed"
    return Refusal(502, code, f"no replica of '{key}' answered: {err}", retry_after=1)
