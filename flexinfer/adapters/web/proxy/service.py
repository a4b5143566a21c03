"""The proxy: from a client's request to one replica's answer."""

import asyncio
from collections.abc import Awaitable, Callable

from flexinfer.adapters.web.proxy import figures, listing
from flexinfer.adapters.web.proxy.access import AccessLog
from flexinfer.adapters.web.proxy.connections import Connections
from flexinfer.adapters.web.proxy.figures import ModelFigures
from flexinfer.adapters.web.proxy.forward import Forwarder, Trip
from flexinfer.adapters.web.proxy.front import Front, Job, Report
from flexinfer.adapters.web.proxy.keys import ApiKeys
from flexinfer.adapters.web.proxy.relay import DROP_FROM_CLIENT, Outgoing
from flexinfer.adapters.web.proxy.waiting import WaitingRoom
from flexinfer.contracts.events import ModelEndpoint
from flexinfer.core.routing import affinity, target
from flexinfer.core.routing.directory import Directory
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.table import key_of
from flexinfer.ports import Clock
from flexinfer.telemetry import metrics

_OWN = DROP_FROM_CLIENT | {b"x-model-id", b"x-flexinfer-background", b"x-flexinfer-endpoint", b"x-flexinfer-reason"}
_WARMING_SECONDS = 2.0
_OWN_AND_KEY = _OWN | {b"authorization"}  # with keys of ours, the engine is not shown them


class ProxyService:
    """Answers every request of a listener."""

    def __init__(  # noqa: PLR0913 - the parts of a proxy
        self,
        directory: Directory,
        connections: Connections,
        room: WaitingRoom,
        clock: Clock,
        report: Report,
        *,
        access: AccessLog | None = None,
        keys: ApiKeys | None = None,
        expose: Callable[[Callable[[], bytes]], Awaitable[bytes]] | None = None,
        clients: Callable[[], int] = lambda: 0,
    ) -> None:
        """``expose`` turns our own metrics into what ``/metrics`` answers; as they are unless given. ``clients`` tells
        how many connections the listener has."""
        self._clients = clients
        self._access = access
        self._keys = keys
        self._directory = directory
        self._connections = connections
        self._room = room
        self._forwarder = Forwarder(directory, connections, room, clock)
        self._clock = clock
        self._figures: dict[str, ModelFigures] = {}
        self._started = int(clock.now())
        self._expose = expose
        self._warmed = asyncio.Event()
        self.handle = Front(clock, report, self._answer, self._done, self._metrics).handle

    # --- the table moved -------------------------------------------------------------------------------------

    def moved(self, keys: tuple[str, ...]) -> None:
        """Routes changed: requests that wait look again, and what is gone is let go."""
        if self._directory.warm:
            self._warmed.set()
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
        now = self._clock.now()
        figured = self._figures.get(job.key) or self._figures_of(job.key)
        status = job.status
        if status:
            figured.codes[status] = figured.codes.get(status, 0) + 1
            figured.duration.observe(now - job.received)
        else:
            figures.CANCELLED.labels(job.key).inc()
        if refusal is not None:
            figures.REFUSED.labels(refusal.code).inc()
        if job.first_byte:
            figured.first_byte.observe(job.first_byte - job.received)
        figured.tokens += job.tokens
        if self._access:
            self._access.note(job, refusal, now)

    async def _answer(self, job: Job) -> None:
        if self._keys:
            self._keys.check(job.request.header(b"authorization"))
        name = job.models_path
        body = b"" if name is not None else await job.request.body()
        if not self._directory.warm:
            await self._warm()
        if name is not None:
            self._answer_models(job, name)
            return
        spec, body = self._route(job, body)
        job.key = key_of(spec)
        dropped = _OWN_AND_KEY if self._keys else _OWN
        out = Outgoing(job.request, job.target.path, body, request_id=job.id, dropped=dropped, plain=job.request.old)
        usage = self._directory.used(job.key)
        usage.begin(job.received, background=job.background)
        try:
            await self._forwarder.forward(Trip(job, out, usage, self._affinity(spec, job, body)), spec)
        finally:
            usage.end(self._clock.now(), background=job.background)

    def _route(self, job: Job, body: bytes) -> tuple[ModelEndpoint, bytes]:
        """Which model is asked for, and the body as its engine wants it. Raises Refusal."""
        name = job.model_asked(body)
        spec = self._directory.table.resolve(name)
        adapter = self._directory.table.adapter(spec, name)
        if adapter is not None and job.as_json:
            return spec, target.with_fields(body, adapter.body)
        if spec.served_model and not (job.in_body and name == spec.served_model):
            if job.as_json:
                body = target.with_model(body, spec.served_model)
            elif job.boundary is not None:
                body = target.with_multipart_model(body, job.boundary, spec.served_model)
        return spec, body

    def _affinity(self, spec: ModelEndpoint, job: Job, body: bytes) -> str:
        if spec.balancing == "session":
            return affinity.session_of(job.request.header(affinity.SESSION_HEADER), body)
        return affinity.prefix_of(body) if spec.balancing == "prefix" else ""

    async def _warm(self) -> None:
        """A process that just started waits a moment for its table rather than refuse what it will soon serve."""
        try:
            async with asyncio.timeout(_WARMING_SECONDS):
                await self._warmed.wait()
        except TimeoutError as err:
            raise Refusal(503, "not_ready", "the proxy has no routing table yet", retry_after=2) from err

    # --- what the proxy answers itself -----------------------------------------------------------------------

    def _answer_models(self, job: Job, name: str) -> None:
        job.respond_json(
            listing.one_model(self._directory, name, self._started)
            if name
            else listing.model_list(self._directory, self._started)
        )

    async def _metrics(self) -> bytes:
        return await self._expose(self.own_metrics) if self._expose else self.own_metrics()

    def own_metrics(self) -> bytes:
        """The text of this process; gauges are read from the state they describe when somebody looks."""
        for key in self._directory.table.routes:
            usage = self._directory.usage.get(key)
            demand = self._room.demands.get(key)
            figures.OUTSTANDING.labels(key).set(usage.outstanding if usage else 0)
            figures.WAITING.labels(key).set(len(demand.since) if demand else 0)
        for figured in self._figures.values():
            figured.tell()
        figures.CLIENTS.set(self._clients())
        figures.ENGINES.set(self._connections.open)
        figures.LEFT_OUT.set(self._access.left_out if self._access else 0)
        return metrics.expose()

    def _figures_of(self, key: str) -> ModelFigures:
        found = self._figures.get(key)
        if found is None:
            found = self._figures[key] = ModelFigures(key)
        return found
