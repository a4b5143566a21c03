"""Clients that ask all the time, and what the executables count of their events."""

import asyncio
import itertools
import re
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

from tests.faults.deck import SLOTS
from tests.faults.programs import Program

ASK_SECONDS = 60.0
PAUSE = 0.2
_EVENTS = re.compile(r'^flexinfer_bus_events_total\{direction="(\w+)",type="[^"]*"\} (\S+)$', re.MULTILINE)


@dataclass
class Traffic:
    """``sent`` requests; ``answers`` by status, ``none`` for a connection that broke or a time limit."""

    urls: tuple[str, ...]
    sent: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    async def client(self, number: int) -> None:
        """One client, until cancelled."""
        turn = itertools.count(number)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_SECONDS)) as session:
            while True:
                at = next(turn)
                self.sent += 1
                self.answers[await ask(session, self.urls[at % len(self.urls)], SLOTS[at // 2 % len(SLOTS)])] += 1
                await asyncio.sleep(PAUSE)


async def ask(session: aiohttp.ClientSession, url: str, model: str) -> str:
    """Status of one chat, as text."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
            await answer.read()
            return str(answer.status)
    except (aiohttp.ClientError, OSError, TimeoutError):
        return "none"


@dataclass
class EventCount:
    """Events published and delivered by all executables, over their restarts; what was counted between the last look
    and a kill is lost."""

    current: dict[int, dict[str, float]] = field(default_factory=dict)  # by pid

    async def look(self, programs: list[Program]) -> None:
        for program in programs:
            if program.running:
                pid = program.pid
                status, text = await program.page("/metrics")
                if status == 200:
                    found: Counter[str] = Counter()
                    for direction, count in _EVENTS.findall(text):
                        found[direction] += int(float(count))
                    self.current[pid] = dict(found)

    def sums(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for counts in self.current.values():
            for direction, count in counts.items():
                found[direction] += int(count)
        return dict(found)
