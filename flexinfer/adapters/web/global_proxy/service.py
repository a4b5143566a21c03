"""The global proxy: from a client's request to one cluster's answer."""

from typing import Any

import msgspec

from flexinfer.adapters.web.global_proxy import figures, status
from flexinfer.adapters.web.global_proxy.checks import Checks
from flexinfer.adapters.web.proxy.connections import Connections
from flexinfer.adapters.web.proxy.front import Front, Job, Report
from flexinfer.adapters.web.proxy.relay import DROP_FROM_CLIENT, HOP, Counting, Outgoing, relay
from flexinfer.adapters.web.proxy.request import Request
from flexinfer.adapters.web.proxy.upstream import Connection, Head, UpstreamFailed
from flexinfer.core.routing.clusters import Cluster, Clusters, Decision
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.usage import Usage
from flexinfer.ports import Clock
from flexinfer.telemetry import metrics

# 404 too: a model list may be a few seconds old, and another cluster may have what this one just lost.
_TRY_ANOTHER = frozenset({404, 429, 502, 503, 504})
_SICK = frozenset({502, 503, 504})
_REPLACED = HOP | {b"x-request-id", b"x-flexinfer-cluster", b"x-flexinfer-cluster-reason"}


class GlobalService:
    """Answers every request of a listener."""

    def __init__(
        self, clusters: Clusters, connections: Connections, checks: Checks, clock: Clock, report: Report
    ) -> None:
        self._clusters = clusters
        self._connections = connections
        self._checks = checks
        self._clock = clock
        self._usage = Usage()
        self.handle = Front(clock, report, self._answer, self._done, self._metrics, {"/status": self._status}).handle

    def refused(self, why: Refusal) -> None:
        """The listener answered something that was no request."""
        figures.REFUSED.labels(why.code).inc()

    def _done(self, job: Job, refusal: Refusal | None) -> None:
        if refusal is not None:
            figures.REFUSED.labels(refusal.code).inc()
        if job.status:
            figures.REQUESTS.labels(job.key, str(job.status)).inc()
        else:
            figures.CANCELLED.labels(job.key).inc()

    async def _answer(self, job: Job) -> None:
        name = job.models_path
        if name is not None:
            job.respond_json(self._listing(name))
            return
        body = await job.request.body()
        model = job.model_asked(body)
        # The path goes on as it came, model prefix included: the cluster's own proxy reads it again.
        out = Outgoing(
            job.request, job.request.path, body, request_id=job.id, dropped=DROP_FROM_CLIENT, plain=job.request.old
        )
        await self._forward(job, model, out)

    async def _decide(self, model: str, tried: set[str]) -> Decision | None:
        decision = self._clusters.choose(model, self._clock.now(), tried)
        if decision is None and not tried and await self._checks.soon():
            decision = self._clusters.choose(model, self._clock.now(), tried)
        return decision

    async def _forward(self, job: Job, model: str, out: Outgoing) -> None:
        tried: set[str] = set()
        failure: UpstreamFailed | None = None
        while True:
            decision = await self._decide(model, tried)
            if decision is None:
                raise _nobody(model, failure)
            cluster = decision.cluster
            tried.add(cluster.name)
            cluster.outstanding += 1
            try:
                url = cluster.url()
                connection, head = await self._connections.ask(
                    url, out.head, out.body, bodiless=out.bodiless, plain=out.plain
                )
                if head.status in _TRY_ANOTHER and self._clusters.has_other(model, tried):
                    self._connections.drop(connection)
                    self._failed(cluster, "status", f"answered {head.status}", sick=_is_sick(head))
                    continue
                await self._relay(job, decision, url, connection, head)
                return
            except UpstreamFailed as err:
                if err.stage == "timeout":
                    raise Refusal(504, "engine_timeout", f"cluster '{cluster.name}' did not answer in time") from err
                failure = err
                self._failed(cluster, err.stage, str(err), sick=True)
            finally:
                cluster.outstanding -= 1

    def _failed(self, cluster: Cluster, stage: str, why: str, *, sick: bool) -> None:
        figures.RETRIES.labels(cluster.name, stage).inc()
        if sick:
            self._checks.bad(cluster, why)

    async def _relay(self, job: Job, decision: Decision, url: str, connection: Connection, head: Head) -> None:
        cluster = decision.cluster
        job.key = cluster.name
        now = self._clock.now()
        took = max(0.0, now - job.received)
        figures.FIRST_BYTE.labels(cluster.name).observe(took)
        cluster.timed(took, now)
        if not _is_sick(head):
            cluster.health.good(now, checked=False)
        extra = [
            (b"x-request-id", job.id),
            (b"x-flexinfer-cluster", cluster.name.encode()),
            (b"x-flexinfer-cluster-reason", decision.reason.encode()),
        ]
        counting = Counting(self._usage, stream=b"event-stream" in head.header(b"content-type"))
        try:
            await relay(job.client, connection, head, extra, _REPLACED, counting)
            job.status = head.status
        except UpstreamFailed as err:
            figures.BROKEN.labels(cluster.name).inc()
            self._checks.bad(cluster, str(err))
            job.status = 502
            job.client.abort()
        finally:
            self._connections.give_back(url, connection, stream=counting.stream)

    def _status(self, request: Request) -> tuple[bytes, bytes]:
        rows = status.report(self._clusters, self._clock.now())
        if "text/html" in request.header(b"accept"):
            return status.page(self._clusters.strategy, rows), b"text/html; charset=utf-8"
        body = msgspec.json.encode({"strategy": self._clusters.strategy, "clusters": rows})
        return body, b"application/json"

    def _listing(self, name: str) -> bytes:
        rows = status.merged(self._clusters)
        if not name:
            return msgspec.json.encode({"object": "list", "data": list(rows.values())})
        row: dict[str, Any] | None = rows.get(name) or next(
            (row for row in rows.values() if status.answers_to(row, name)), None
        )
        if row is None:
            raise Refusal(404, "model_not_found", f"the model '{name}' does not exist", param="model")
        return msgspec.json.encode(row)

    async def _metrics(self) -> bytes:
        for cluster in self._clusters.members.values():
            figures.UP.labels(cluster.name).set(cluster.health.up)
            figures.OUTSTANDING.labels(cluster.name).set(cluster.outstanding)
        return metrics.expose()


def _is_sick(head: Head) -> bool:
    """Whether an answer speaks against the cluster. What its own proxy says (it marks all it says) is about a model."""
    return head.status in _SICK and not any(name == b"x-request-id" for name, _ in head.headers)


def _nobody(model: str, failure: UpstreamFailed | None) -> Refusal:
    if failure is not None:
        return Refusal(502, "engine_unreachable", f"no cluster answered for '{model}': {failure}", retry_after=1)
    return Refusal(503, "cluster_unavailable", f"no cluster has the model '{model}'", param="model", retry_after=5)
