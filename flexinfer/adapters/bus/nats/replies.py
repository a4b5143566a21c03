"""Answers to requests on one connection, told apart by a token, with the reason when none comes."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from flexinfer.ports import BusRefused, BusUnavailable

Problem = Literal["", "absent", "denied", "timeout", "closed"]

_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)
_json = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``problem``: ``absent`` (nobody serves the subject), ``denied``, ``timeout``, ``closed``."""

    data: bytes = b""
    problem: Problem = ""

    def decoded(self) -> dict[str, Any]:
        """The JSON object, empty if it is none."""
        try:
            return _json.decode(self.data)
        except msgspec.DecodeError:
            return {}


@dataclass(frozen=True, slots=True)
class _Waiting:
    subject: str
    deadline: float
    tell: Callable[[Answer], None]


class Replies:
    """One reply subscription shared by all requests of a connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._prefix = ""
        self._next = 0
        self._waiting: dict[str, _Waiting] = {}

    async def start(self) -> None:
        """Subscribe; call once, before anything else."""
        self._prefix = client_inbox(self._client) + "."
        await self._client.subscribe(self._prefix + "*", cb=self._on_reply)

    def expect(self, subject: str, tell: Callable[[Answer], None], within: float) -> str:
        """The reply address for a message about to go to ``subject``; ``tell`` is called exactly once."""
        self._next += 1
        token = str(self._next)
        deadline = asyncio.get_running_loop().time() + within
        self._waiting[token] = _Waiting(subject, deadline, tell)
        return self._prefix + token

    async def ask(self, subject: str, payload: bytes, headers: dict[str, str] | None, within: float) -> Answer:
        """Send and wait at most ``within`` seconds."""
        found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def tell(answer: Answer) -> None:
            if not found.done():
                found.set_result(answer)

        reply = self.expect(subject, tell, within)
        await self._client.publish(subject, payload, reply=reply, headers=headers)
        try:
            return await asyncio.wait_for(found, within)
        except TimeoutError:
            return Answer(problem="timeout")
        finally:
            self._waiting.pop(reply.removeprefix(self._prefix), None)

    async def _on_reply(self, msg: Msg) -> None:
        waiting = self._waiting.pop(msg.subject.removeprefix(self._prefix), None)
        if waiting is None:
            return
        absent = (msg.headers or {}).get("Status") == "503"
        waiting.tell(Answer(problem="absent") if absent else Answer(msg.data))

    def sweep(self) -> None:
        """Give up on what is overdue."""
        now = asyncio.get_running_loop().time()
        self._end(lambda waiting: waiting.deadline <= now, "timeout")

    def error(self, text: str) -> str | None:
        """Fail what waits for a subject the server just refused; the subject, None if the text is something else."""
        match = _DENIED.search(text)
        if match is None:
            return None
        subject = match.group(2)
        # nats-py lower-cases the server's text.
        self._end(lambda waiting: waiting.subject.lower() == subject.lower(), "denied")
        return f"{match.group(1)} {subject}"

    def close(self) -> None:
        """The connection is gone."""
        self._end(lambda _waiting: True, "closed")

    def _end(self, which: Callable[[_Waiting], bool], problem: Problem) -> None:
        for token in [token for token, waiting in self._waiting.items() if which(waiting)]:
            self._waiting.pop(token).tell(Answer(problem=problem))


def client_inbox(client: Client) -> str:
    """A fresh inbox below the prefix of this client's user."""
    inbox: str = client.new_inbox()
    return inbox


def check(answer: Answer, what: str, absent: str) -> dict[str, Any]:
    """The decoded answer.

    ``what`` names the attempt and ``absent`` says what a missing responder means. Raises BusUnavailable, BusRefused.
    """
    match answer.problem:
        case "timeout":
            raise BusUnavailable(f"{what}: the bus did not answer in time")
        case "closed":
            raise BusUnavailable(f"{what}: the connection to the bus was lost")
        case "denied":
            raise BusRefused(f"{what}: the bus denies this subject to our credentials")
        case "absent":
            raise BusRefused(f"{what}: {absent}")
        case _:
            return answer.decoded()
