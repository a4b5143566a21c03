"""Deliberate misbehaviour, for tests of clients: answers that hang, fail, or break off."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from flexinfer.adapters.web.serve import Send
from flexinfer.local.kubeapi import errors
from flexinfer.local.kubeapi.requests import Request

What = Literal["hang", "reset", "status", "delay"]


class ConnectionCut(Exception):
    """Raised after the connection was aborted on purpose, so that nothing is answered."""


@dataclass(slots=True)
class Fault:
    """One rule. It strikes requests whose ``METHOD path`` matches ``pattern``, ``times`` times (None: always)."""

    what: What
    pattern: re.Pattern[str]
    times: int | None
    status: int = 500
    retry_after: int = 0
    seconds: float = 0.0
    struck: int = 0

    def applies(self, request: Request) -> bool:
        """Whether this request is hit; counts it."""
        if self.times is not None and self.struck >= self.times:
            return False
        watch = " watch" if request.flag("watch") else ""
        if not self.pattern.search(f"{request.method} {request.path}{watch}"):
            return False
        self.struck += 1
        return True


class Faults:
    """Rules in force. The text matched is ``METHOD /path``, followed by `` watch`` for watches."""

    def __init__(self) -> None:
        self._rules: list[Fault] = []
        self._released = asyncio.Event()

    def hang(self, pattern: str = "", times: int | None = None) -> Fault:
        """Take the request and never answer, until ``clear`` or the server stops."""
        return self._add(Fault("hang", re.compile(pattern), times))

    def reset(self, pattern: str = "", times: int | None = 1) -> Fault:
        """Cut the connection without an answer."""
        return self._add(Fault("reset", re.compile(pattern), times))

    def fail(self, status: int, pattern: str = "", times: int | None = 1, retry_after: int = 0) -> Fault:
        """Answer with an error: 410, 429, 500, 503 or another."""
        return self._add(Fault("status", re.compile(pattern), times, status=status, retry_after=retry_after))

    def delay(self, seconds: float, pattern: str = "", times: int | None = None) -> Fault:
        """Answer late."""
        return self._add(Fault("delay", re.compile(pattern), times, seconds=seconds))

    def _add(self, rule: Fault) -> Fault:
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Remove all rules; hanging requests are cut."""
        self._rules.clear()
        self._released.set()
        self._released = asyncio.Event()

    async def strike(self, request: Request, send: Send) -> None:
        """Apply the first rule that fits. Raises ApiError or ConnectionCut, or returns to go on normally."""
        rule = next((rule for rule in self._rules if rule.applies(request)), None)
        if rule is None:
            return
        match rule.what:
            case "delay":
                await asyncio.sleep(rule.seconds)
            case "status":
                raise errors.ApiError(
                    rule.status,
                    _REASONS.get(rule.status, "InternalError"),
                    "injected fault",
                    retry_after=rule.retry_after,
                )
            case "hang":
                await self._released.wait()
                raise self.cut(send)
            case "reset":
                raise self.cut(send)

    @staticmethod
    def cut(send: Send) -> ConnectionCut:
        """Abort the connection behind ``send``."""
        # ASGI has no word for this; uvicorn's request cycle, whose method ``send`` is, knows its transport.
        cycle: Any = getattr(send, "__self__", None)
        transport: Any = getattr(cycle, "transport", None)
        abort: Callable[[], None] | None = getattr(transport, "abort", None)
        if abort is not None:
            cycle.disconnected = True
            abort()
        return ConnectionCut()


_REASONS = {
    403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests",
    500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip
