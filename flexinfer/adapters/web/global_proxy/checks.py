"""Active checks: every cluster's ``/v1/models``, which tells at once that it is up and what it has."""

import asyncio
import logging

import msgspec

from flexinfer.adapters.web.global_proxy import figures
from flexinfer.adapters.web.proxy.connections import Address, Connections
from flexinfer.adapters.web.proxy.upstream import UpstreamFailed
from flexinfer.core.routing import federation
from flexinfer.core.routing.clusters import Cluster, Clusters
from flexinfer.ports import Clock

log = logging.getLogger(__name__)

_LEAST_PATIENCE = 0.5
_MOST_PATIENCE = 3.0
_MOST_BYTES = 8 << 20
_SOON_SECONDS = 1.0


class _Rows(msgspec.Struct):
    data: list[dict[str, object]]


_rows = msgspec.json.Decoder(_Rows)


class _Buffer:
    """A sink that keeps a bounded answer."""

    def __init__(self, first: bytes) -> None:
        self.data = bytearray(first)

    def write(self, data: bytes) -> None:
        """Take a piece."""
        if len(self.data) + len(data) > _MOST_BYTES:
            raise UpstreamFailed("body", "the model list is too long")
        self.data += data


class Checks:
    """Keeps the model lists and the health of all clusters fresh."""

    def __init__(
        self, clusters: Clusters, connections: Connections, clock: Clock, *, period: float, key: str = ""
    ) -> None:
        """``period`` is in seconds; ``key`` is the API key checks show."""
        self._period = period
        self._patience = max(_LEAST_PATIENCE, min(period, _MOST_PATIENCE))
        self._clusters = clusters
        self._connections = connections
        self._clock = clock
        self._key = key
        self._last = float("-inf")
        self._running: asyncio.Future[None] | None = None
        self.rounds = 0

    async def run(self) -> None:
        """A round now and every period, for ever."""
        while True:
            began = self._clock.monotonic()
            await self.all()
            await asyncio.sleep(max(0.0, began + self._period - self._clock.monotonic()))

    async def all(self) -> None:
        """One round; those who ask while one runs wait for its end."""
        if self._running is not None:
            await asyncio.shield(self._running)
            return
        self._running = asyncio.get_running_loop().create_future()
        try:
            self._last = self._clock.monotonic()
            for gone in federation.tick(self._clusters, self._clock.now()):
                figures.forget(gone.name)
            await asyncio.gather(*(self.one(cluster) for cluster in tuple(self._clusters.members.values())))
            self.rounds += 1
        finally:
            self._running.set_result(None)
            self._running = None

    async def soon(self) -> bool:
        """A round, unless the last one just was; for a model nobody seems to have. Tells whether one ran."""
        if self._running is None and self._clock.monotonic() - self._last < _SOON_SECONDS:
            return False
        await self.all()
        return True

    async def one(self, cluster: Cluster) -> None:
        """Check one cluster."""
        try:
            async with asyncio.timeout(self._patience):
                federation.take_listing(cluster, await self._ask(cluster.url()))
        except (UpstreamFailed, TimeoutError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            why = "no answer in time" if isinstance(err, TimeoutError) else str(err)
            figures.CHECKS.labels(cluster.name, "bad").inc()
            if self.bad(cluster, why):
                # It hangs or is gone: what waits there for a first byte is better asked elsewhere.
                for url in cluster.urls:
                    self._connections.give_up_waiting(url, f"cluster {cluster.name} is down: {why}")
        else:
            figures.CHECKS.labels(cluster.name, "good").inc()
            if cluster.health.good(self._clock.now(), checked=True):
                log.info("cluster %s is up again", cluster.name)

    def bad(self, cluster: Cluster, why: str) -> bool:
        """A check or request failed; tells whether the cluster went down with it."""
        went = cluster.health.bad(self._clock.now(), why)
        if went:
            log.warning("cluster %s is down: %s", cluster.name, why)
        return went

    async def _ask(self, url: str) -> list[dict[str, object]]:
        connection, head = await self._connections.ask(url, self._head, b"", plain=True)
        try:
            if head.status != 200:
                raise UpstreamFailed("head", f"/v1/models answered {head.status}")
            buffer = _Buffer(connection.take())
            connection.resume()
            await connection.relay(buffer)
            return _rows.decode(bytes(buffer.data)).data
        finally:
            self._connections.give_back(url, connection, stream=False)

    def _head(self, address: Address) -> bytes:
        authorization = b"authorization: Bearer %s\r\n" % self._key.encode() if self._key else b""
        return b"GET %s/v1/models HTTP/1.1\r\nhost: %s\r\naccept: application/json\r\n%s\r\n" % (
            address.prefix, address.authority, authorization,
        )  # fmt: skip
