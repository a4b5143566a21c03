"""One request to one of a model's replicas, and to another one while nothing was answered yet."""

from dataclasses import dataclass, field

from flexinfer.adapters.web.proxy import figures
from flexinfer.adapters.web.proxy.connections import Connections
from flexinfer.adapters.web.proxy.front import Job
from flexinfer.adapters.web.proxy.relay import HOP, Counting, Outgoing, relay
from flexinfer.adapters.web.proxy.request import Header
from flexinfer.adapters.web.proxy.upstream import Connection, Head, UpstreamFailed
from flexinfer.adapters.web.proxy.waiting import WaitingRoom
from flexinfer.contracts.events import ModelEndpoint
from flexinfer.core.routing.balance import Choice, choose
from flexinfer.core.routing.directory import Directory
from flexinfer.core.routing.refusal import Code, Refusal
from flexinfer.core.routing.replicas import Key, Pool, Replica
from flexinfer.core.routing.usage import Usage
from flexinfer.ports import Clock

_TRY_ANOTHER = frozenset({429, 500, 502, 503, 504})
_REPLACED = HOP | {b"x-request-id", b"x-flexinfer-endpoint", b"x-flexinfer-reason"}
_MOST_ANSWERS = 3  # replicas that may see one request; refused connections do not count
# The endpoint event of a replica that was just replaced may be a moment behind the replica.
_PATIENCE_SECONDS = 3.0
_MOST_MOVES = 5  # events waited for by one request that nobody saw yet


@dataclass(slots=True)
class Trip:
    """The attempts of one request."""

    job: Job
    out: Outgoing
    usage: Usage
    affinity: str = ""
    tried: set[Key] = field(default_factory=set)
    asked: int = 0  # replicas that saw the request
    failure: UpstreamFailed | None = None
    patience: int = _MOST_MOVES  # endpoint events it may still wait for


class Forwarder:
    """Picks replicas, sends, relays, and judges replicas by what they do."""

    def __init__(self, directory: Directory, connections: Connections, room: WaitingRoom, clock: Clock) -> None:
        self._directory = directory
        self._connections = connections
        self._room = room
        self._clock = clock

    async def forward(self, trip: Trip, spec: ModelEndpoint) -> None:
        """Answer the request. Raises Refusal."""
        job = trip.job
        while True:
            pool = self._directory.pools.get(job.key)
            if pool is None:
                raise Refusal(404, "model_not_found", f"the model '{job.key}' was removed", param="model")
            choice = choose(pool, self._clock.now(), trip.tried, trip.affinity)
            if choice is not None:
                if await self._attempt(trip, pool, choice):
                    return
            elif trip.failure is None:
                spec = self._directory.table.routes.get(job.key, spec)
                await self._room.wait(spec, job.received, background=job.background)
            elif trip.patience and await self._room.moved_within(job.key, _PATIENCE_SECONDS):
                # Replicas that are gone by now are no failure: with none left the request waits for a start.
                trip.tried.clear()
                trip.failure = None
                trip.patience -= 1
            else:
                raise _refusal(job.key, trip.failure)

    async def _attempt(self, trip: Trip, pool: Pool, choice: Choice) -> bool:
        """Tells whether the client was answered."""
        replica = choice.replica
        trip.tried.add(replica.key)
        trip.job.endpoint, trip.job.reason = replica.pod, choice.reason
        replica.outstanding += 1
        probe = replica.ejection.began(self._clock.now())
        try:
            connection, head = await self._connections.ask(
                replica.url, trip.out.head, trip.out.body, bodiless=trip.out.bodiless, plain=trip.out.plain
            )
            self._judge(trip, replica, head)
            if head.status in _TRY_ANOTHER and self._may_go_on(trip, pool):
                self._connections.drop(connection)
                figures.RETRIES.labels(trip.job.key, "status").inc()
                return False
            await self._relay(trip, choice, connection, head)
        except UpstreamFailed as err:
            self._blame(trip, replica, err)
            return False
        else:
            return True
        finally:
            if probe:
                replica.ejection.gave_up()
            replica.outstanding -= 1

    def _may_go_on(self, trip: Trip, pool: Pool) -> bool:
        trip.asked += 1
        return trip.asked < _MOST_ANSWERS and pool.has_other(self._clock.now(), trip.tried)

    def _judge(self, trip: Trip, replica: Replica, head: Head) -> None:
        now = self._clock.now()
        if head.status < 500:
            replica.ejection.good(now)
        elif replica.ejection.bad(now):
            figures.EJECTIONS.labels(trip.job.key).inc()

    def _blame(self, trip: Trip, replica: Replica, err: UpstreamFailed) -> None:
        """A replica gave no answer. Raises Refusal when no other one may be asked."""
        if replica.ejection.bad(self._clock.now()):
            figures.EJECTIONS.labels(trip.job.key).inc()
        figures.RETRIES.labels(trip.job.key, err.stage).inc()
        trip.failure = err
        if err.stage == "connect":
            return
        trip.asked += 1
        trip.patience = 0
        if err.stage == "timeout" or trip.asked >= _MOST_ANSWERS:
            raise _refusal(trip.job.key, err)

    async def _relay(self, trip: Trip, choice: Choice, connection: Connection, head: Head) -> None:
        job = trip.job
        attempts = len(trip.tried)
        reason = choice.reason if attempts == 1 else f"{choice.reason} attempt={attempts}"
        extra: list[Header] = [
            (b"x-request-id", job.id),
            (b"x-flexinfer-endpoint", choice.replica.header),
            (b"x-flexinfer-reason", reason.encode()),
        ]
        counting = Counting(trip.usage, stream=b"event-stream" in head.header(b"content-type"))
        job.first_byte = self._clock.now()
        try:
            await relay(job.client, connection, head, extra, _REPLACED, counting)
            job.status = head.status
        except UpstreamFailed:
            # The client has a part of the answer: only a cut connection tells it that the rest is missing.
            figures.BROKEN.labels(job.key).inc()
            if choice.replica.ejection.bad(self._clock.now()):
                figures.EJECTIONS.labels(job.key).inc()
            job.status = 502
            job.client.abort()
        finally:
            job.bytes_out, job.tokens = counting.size, counting.counted
            self._connections.give_back(choice.replica.url, connection, stream=counting.stream)


def _refusal(key: str, err: UpstreamFailed) -> Refusal:
    if err.stage == "timeout":
        return Refusal(504, "engine_timeout", f"the engine of '{key}' did not answer in time: {err}")
    code: Code = "engine_unreachable" if err.stage == "connect" else "engine_failed"
    return Refusal(502, code, f"no replica of '{key}' answered: {err}", retry_after=1)
