"""The auth callout of the bus: servers ask who a client is, and what it may do is signed here.

Servers ask one of all services that run; nobody's answer counts but one signed by the key their configuration names.
Clients that a server knows by itself (``auth_users``) are not asked about.
"""

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from flexinfer.adapters.bus.background import Background
from flexinfer.adapters.bus.nats.link import Link, Session, addresses
from flexinfer.adapters.bus.nats.signing import Request, Signer, read_request
from flexinfer.config.common import BusSettings
from flexinfer.contracts.permissions import CALLOUT_SUBJECT, Grant, Refusal
from flexinfer.ports import Clock
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

QUEUE = "flexinfer-callout"
ACCOUNT = "$G"  # where a server keeps clients and streams unless it was told of accounts
AT_ONCE = 64  # decisions under way; a fleet that comes back after an outage must not flood who is asked
WAITING = 8192  # a fleet's agents; what comes beyond them is tried again by its client
# Clients give up on a login after about 2 s: a decision that took longer is there for their next attempt.
KEPT_SECONDS = 10.0
SHORTEST_SHARE = 0.75  # of what is granted: connections made together do not end together

_DECISIONS = metrics.counter(
    "flexinfer_bus_callout_total",
    "Clients of the bus decided about: granted, or the reason of the refusal; busy: not decided.",
    ("outcome",),
)

Decide = Callable[[str], Awaitable[Grant | Refusal]]


class Callout:
    """One service. ``decide`` gets what the client showed: its password or token."""

    def __init__(self, signer: Signer, decide: Decide, clock: Clock) -> None:
        self._signer = signer
        self._decide = decide
        self._clock = clock
        self._background = Background("callout")
        self._places = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._decisions: dict[
            bytes, tuple[float, asyncio.Task[Grant | Refusal]]
        ] = {}  # since when, by the login's hash
        self._link: Link | None = None
        self._session: Session | None = None

    @property
    def serving(self) -> bool:
        """Whether servers that ask now are heard."""
        return self._session is not None and self._session.alive

    def start(self, settings: BusSettings, name: str) -> None:
        """Connect in the background, for ever, and serve. Raises ValueError without an address."""
        link = Link(addresses(settings.nats_url), name, settings.nats_credentials, settings.bus_ca)
        link.on_up.append(self._serve)
        link.start()
        self._link = link

    async def close(self) -> None:
        """Leave what is asked from now on to the others."""
        if self._link is not None:
            await self._link.close()
        await self._background.close()

    def _serve(self, session: Session) -> None:
        self._background.start("subscribe", self._subscribe(session))

    async def _subscribe(self, session: Session) -> None:
        async def take(msg: Msg) -> None:
            if self._waiting >= WAITING:
                _DECISIONS.labels(outcome="busy").inc()
                return
            self._waiting += 1
            self._background.start("decide", self._answer(session, msg))

        try:
            await session.client.subscribe(CALLOUT_SUBJECT, queue=QUEUE, cb=take)
            await session.settled()
            self._session = session
        except (NatsError, OSError) as err:
            log.debug("callout not subscribed, the connection ended: %s", err)

    async def _answer(self, session: Session, msg: Msg) -> None:
        try:
            found = await self._decided(msg.data)
            if found is not None and session.alive:
                await session.client.publish(msg.reply, found)
        except (NatsError, OSError) as err:
            log.debug("callout answer not sent, the connection ended: %s", err)
        finally:
            self._waiting -= 1

    async def _decided(self, raw: bytes) -> bytes | None:
        try:
            asked = read_request(raw)
        except ValueError as err:
            _DECISIONS.labels(outcome="malformed").inc()
            log.warning("a server asked something else than about a client: %s", err)
            return None
        grant = await asyncio.shield(self._decision(asked.password))
        now = self._clock.now()
        if isinstance(grant, Refusal):
            _refused(asked, grant)
            return self._signer.answer(asked, now, error=grant.text)
        _DECISIONS.labels(outcome="granted").inc()
        log.info("%s may connect to the bus from %s", grant.name, asked.host)
        share = random.uniform(SHORTEST_SHARE, 1.0)  # noqa: S311 - jitter, not a secret
        end = now + grant.seconds * share
        user = self._signer.user(asked, grant.name, grant.permissions, (now, end), ACCOUNT)
        return self._signer.answer(asked, now, user=user)

    def _decision(self, password: str) -> asyncio.Task[Grant | Refusal]:
        now, login = self._clock.monotonic(), hashlib.sha256(password.encode()).digest()
        while self._decisions and (oldest := next(iter(self._decisions.items())))[1][0] <= now - KEPT_SECONDS:
            del self._decisions[oldest[0]]
        since, task = self._decisions.get(login, (now, None))
        if task is None or (task.done() and not isinstance(task.result(), Grant)):
            self._decisions.pop(login, None)
            task = self._background.start("ask", self._asked(password))
            self._decisions[login] = (since, task)
        return task

    async def _asked(self, password: str) -> Grant | Refusal:
        async with self._places:
            return await self._decide(password)


def _refused(asked: Request, refusal: Refusal) -> None:
    _DECISIONS.labels(outcome=refusal.reason).inc()
    log.warning(
        "client %r from %s may not connect to the bus: %s", asked.client, asked.host, refusal.text,
        extra={"reason": refusal.reason},
    )  # fmt: skip
