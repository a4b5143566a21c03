"""The connection to the bus: made in the background, made again for ever.

Each connection is a fresh client with the library's own reconnect off. That keeps three things in our hands: the
backoff (jittered, quick at first), credentials read anew each time, and that nothing of an old connection is sent
on the next one unseen (with the library's buffer a publish that failed by timeout is still sent later).
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.background import Background
from flexinfer.adapters.bus.nats.replies import Answer, Replies, check
from flexinfer.contracts.permissions import inbox_prefix
from flexinfer.ports import BusRefused, BusUnavailable

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 5.0
PING_SECONDS = 10
FIRST_WAIT = 0.1
QUICK_TRIES = 12  # at most 0.5 s apart: a bus that restarts is found again in well under a second
QUICK_WAIT = 0.5
OLDEST_SERVER = (2, 11)  # the first with a time to live per message
LONGEST_WAIT = 8.0  # catch-up after any outage is promised within 10 s
SOFT_BUFFER = 4 << 20
FLUSH_SECONDS = 0.1
FLUSH_STEP = 0.001
HARD_BUFFER = 16 << 20


def pause(tries: int) -> float:
    """Longest wait in seconds before the next attempt after ``tries`` failed ones: quick for a while, then doubling."""
    if tries < QUICK_TRIES:
        return min(FIRST_WAIT * 2.0**tries, QUICK_WAIT)
    return min(QUICK_WAIT * 2.0 ** min(tries - QUICK_TRIES + 1, 16), LONGEST_WAIT)


class ApiRefused(BusRefused):
    """JetStream said no; ``code`` is its own error number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Session:
    """One live connection."""

    def __init__(self, client: Client, replies: Replies) -> None:
        self.client = client
        self._replies = replies
        self._slow: dict[Any, Callable[[], None]] = {}
        self._stuck = False

    @property
    def alive(self) -> bool:
        """Whether messages can be sent now."""
        return bool(self.client.is_connected)

    async def congested(self) -> bool:
        """Whether the bus has stopped taking messages. Waits at most FLUSH_SECONDS, once, to find out."""
        if self.client.pending_data_size < SOFT_BUFFER:
            self._stuck = False
            return False
        steps = 0 if self._stuck else int(FLUSH_SECONDS / FLUSH_STEP)
        for _ in range(steps):  # a burst that never yields starves the library's flusher
            await asyncio.sleep(FLUSH_STEP)
            if self.client.pending_data_size < SOFT_BUFFER:
                return False
        self._stuck = True
        return True

    async def settled(self) -> None:
        """Return once the server has seen all that was sent before.

        Two pings: the library writes a ping at once, ahead of what its own buffer still holds, so that the first
        answer says nothing about a subscription just made; by then the buffer is written, and the second does.
        Raises NatsError, OSError.
        """
        await self.client.flush()
        await self.client.flush()

    async def send(self, subject: str, payload: bytes, headers: dict[str, str] | None = None, reply: str = "") -> None:
        """Fire and forget. Raises BusUnavailable."""
        try:
            await self.client.publish(subject, payload, reply=reply, headers=headers)
        except (NatsError, OSError) as err:
            raise BusUnavailable(f"cannot send to {subject}: {err}") from err

    async def send_expecting(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, tell: Callable[[Answer], None]
    ) -> None:
        """Send and return; ``tell`` gets the answer or the reason why none came."""
        reply = self._replies.expect(subject, tell, REQUEST_SECONDS)
        try:
            await self.client.publish(subject, payload, reply=reply, headers=headers)
        except (NatsError, OSError) as err:
            raise BusUnavailable(f"cannot send to {subject}: {err}") from err

    async def ask(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, within: float = REQUEST_SECONDS
    ) -> Answer:
        """Send and wait for the answer. Raises BusUnavailable if it cannot be sent."""
        try:
            return await self._replies.ask(subject, payload, headers, within)
        except (NatsError, OSError) as err:
            raise BusUnavailable(f"cannot send to {subject}: {err}") from err

    async def api(self, verb: str, body: bytes = b"") -> dict[str, Any]:
        """One JetStream API call. Raises ApiRefused for its errors, BusUnavailable, BusRefused."""
        answer = await self.ask(f"$JS.API.{verb}", body)
        found = check(answer, f"JetStream {verb}", "JetStream is not enabled on this bus (nats-server -js)")
        error = found.get("error")
        if error:
            raise ApiRefused(int(error.get("err_code", 0)), f"JetStream {verb}: {error.get('description', error)}")
        return found

    def when_slow(self, subscription: Any, tell: Callable[[], None]) -> None:
        """Call ``tell`` for each message the client had to drop for this subscription."""
        self._slow[subscription] = tell

    def slow(self, subscription: Any) -> None:
        """A message was dropped."""
        tell = self._slow.get(subscription)
        if tell:
            tell()


class Link:
    """Keeps one session up. ``on_up`` and ``on_down`` are called on the loop at each change."""

    def __init__(self, urls: tuple[str, ...], name: str, credentials: Path | None, ca: Path | str | None) -> None:
        """``ca``: a PEM file, or its text."""
        self._urls = urls
        self._name = name
        self._credentials = credentials
        self._ca = ca
        self._background = Background(f"bus:{name}")
        self._state = ""
        self._gauge = inbound.CONNECTED.labels(client=name)
        self.session: Session | None = None
        self.on_up: list[Callable[[Session], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self._up = asyncio.Event()

    def start(self) -> None:
        """Begin connecting."""
        self._gauge.set(0)
        self._background.start("connect", self._keep())

    async def up(self) -> Session:
        """The session, waiting for it as long as it takes."""
        while self.session is None:
            await self._up.wait()
        return self.session

    async def _keep(self) -> None:
        tries = 0
        while True:
            try:
                if await self._live(self._urls[tries % len(self._urls)]):
                    tries = 0
            except Exception:  # nothing may end the attempts: a process without its bus never recovers
                log.exception("%s: the connection failed unexpectedly; trying on", self._name)
            await asyncio.sleep(pause(tries) * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            tries += 1

    async def _live(self, url: str) -> bool:
        """Connect and stay until the connection ends; whether it was ever up."""
        client = Client()
        replies = Replies(client)
        ended = asyncio.Event()
        session = Session(client, replies)
        failure: list[Exception] = []

        async def on_error(err: Exception) -> None:
            if isinstance(err, SlowConsumerError):
                session.slow(err.sub)
                return
            denied = replies.error(str(err))
            if denied:
                log.warning("the bus denies %s to client %s", denied, self._name)
            elif self.session is not session:
                failure.append(err)
                raise err  # ends the library's own endless first connect
            else:
                failure.append(err)

        async def on_closed() -> None:
            ended.set()

        try:
            async with asyncio.timeout(CONNECT_SECONDS * 2):
                await client.connect(
                    url,
                    error_cb=on_error,
                    closed_cb=on_closed,
                    allow_reconnect=False,
                    **self._options(url),
                )
                _check_welcome(client)
                await replies.start()
        except (OSError, NatsError, TimeoutError, ValueError, ImportError) as err:
            await _discard(client)
            self._say("away", "cannot reach the bus at %s (%s); trying on", _bare(url), _reason(err))
            return False
        await self._stay(session, replies, ended, url)
        reason = _reason(failure[-1]) if failure else "closed by the server"
        self._say("lost", "lost the bus at %s (%s); reconnecting", _bare(url), reason)
        return True

    async def _stay(self, session: Session, replies: Replies, ended: asyncio.Event, url: str) -> None:
        self.session = session
        self._gauge.set(1)
        version = session.client.connected_server_version
        numbers = f"{version.major}.{version.minor}.{version.patch}"
        self._say("up", "connected to the bus at %s (nats-server %s)", _bare(url), numbers, level=logging.INFO)
        if (version.major, version.minor) < OLDEST_SERVER:
            log.warning("nats-server %s is older than %d.%d: retractions cannot expire", numbers, *OLDEST_SERVER)
        self._up.set()
        try:
            for tell in self.on_up:
                tell(session)
            while not (ended.is_set() or session.client.is_closed):
                # The library can die without its closed callback when the last flush fails; so look, too.
                try:
                    await asyncio.wait_for(ended.wait(), 1.0)
                except TimeoutError:
                    replies.sweep()
        finally:
            self.session = None
            self._up.clear()
            self._gauge.set(0)
            replies.close()
            for tell_down in self.on_down:
                tell_down()

    def _options(self, url: str) -> dict[str, Any]:
        options: dict[str, Any] = {
            "name": self._name,
            "connect_timeout": CONNECT_SECONDS,
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": 2,
            "drain_timeout": 3,
            "pending_size": HARD_BUFFER,
            "inbox_prefix": inbox_prefix(self._name),
        }
        if self._ca or url.startswith(("tls://", "wss://")):
            told = {"cadata": self._ca} if isinstance(self._ca, str) else {"cafile": self._ca}
            options["tls"] = ssl.create_default_context(**told)
        if self._credentials:
            options |= login(self._credentials, self._name)
        return options

    def _say(self, state: str, text: str, *args: object, level: int = logging.WARNING) -> None:
        if state != self._state:
            self._state = state
            log.log(level, "%s: %s", self._name, text % args)

    async def close(self) -> None:
        """Send what is buffered and disconnect within a few seconds."""
        session = self.session
        if session is not None:
            try:
                async with asyncio.timeout(2.0):
                    await session.settled()
            except (OSError, NatsError, TimeoutError):
                log.debug("%s: the last flush failed", self._name)
        await self._background.close()
        if session is not None:
            await _discard(session.client)
        inbound.forget_client(self._name)


def _check_welcome(client: Client) -> None:
    """A server pings a client 2 s into a login that its auth callout has not answered, and the library takes that for
    a yes, with half of its parts at rest. Raises TimeoutError."""
    if client.is_connected:
        return
    # While it waits a server answers no goodbye either, and the library's close would wait for one.
    writer = getattr(client._transport, "_io_writer", None)  # noqa: SLF001 - it offers nothing that does not wait
    if writer is not None:
        writer.transport.abort()
    raise TimeoutError("the server has not decided about our credentials")


async def _discard(client: Client) -> None:
    try:
        async with asyncio.timeout(2.0):
            await client.close()
    except (OSError, NatsError, TimeoutError, AttributeError, AssertionError):
        log.debug("closing a dead connection failed")  # the library assumes a finished connect in places


def addresses(url: str) -> tuple[str, ...]:
    """Servers of a list with commas. Raises ValueError if there is none."""
    urls = tuple(part.strip() for part in url.split(",") if part.strip())
    if not urls:
        raise ValueError("no bus address given")
    return urls


def login(file: Path, name: str) -> dict[str, Any]:
    """Connect options from a credentials file.

    Accepted: a NATS ``.creds`` file, one line with an NKey seed (``SU…``), one line ``user:password``, one line with
    a ServiceAccount's token for an auth callout (it goes as the password of a user ``name``, because servers write
    users into their log), or one line with another token. Raises OSError, ValueError.
    """
    text = file.read_text().strip()
    if "BEGIN NATS USER JWT" in text:
        return {"user_credentials": str(file)}
    if not text or "\n" in text:
        raise ValueError(f"{file} holds no NATS credentials (.creds, NKey seed, user:password or token)")
    if text.startswith("SU") and len(text) == 58 and ":" not in text:
        return {"nkeys_seed_str": text}
    user, colon, password = text.partition(":")
    if not colon and text.startswith("eyJ") and text.count(".") == 2:
        return {"user": name, "password": text}
    return {"user": user, "password": password} if colon else {"token": text}


def _bare(url: str) -> str:
    """The address without a password in it."""
    scheme, _, rest = url.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]


def _reason(err: Exception) -> str:
    return str(err) or type(err).__name__
