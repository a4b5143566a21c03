"""A random walk through faults: real processes, everything breaks, and what must hold is checked all along.

    python -m tests.faults.walk --minutes 60 --seed 7 --folder walk     walk; the tape is walk/walk.jsonl
    python -m tests.faults.walk --tape walk/walk.jsonl --folder again   the same faults at the same pace
    python -m tests.faults.walk --check walk/walk.jsonl                 only judge the facts of a tape again

Each line of the tape is a fact as the watcher was told it (a line of an intake journal), or the fault that was done.
Every now and then the walk holds its breath: all is mended, and the system must come to rest with every model serving
or asleep, everything measured on record and nothing left over.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from flexinfer.adapters.kube.informer import Informer
from flexinfer.contracts.events import ModelEndpoint
from flexinfer.contracts.kubernetes import DEPLOYMENTS, MODELDEPLOYMENTS, SERVICES
from flexinfer.contracts.topics import TOPICS
from flexinfer.ports import BusFact, BusRefused, BusUnavailable, KubeFact, KubeUnavailable, NotFound
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.journal import KubeDelta, Relisted, decode_line, encode_line, read_tape
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.replay_scheduler import SchedulerReplay
from tests.faults.deck import Fault, plan
from tests.faults.hands import Hands
from tests.faults.house import House, children_in
from tests.faults.invariants import FOLLOWED, WATCHED, Invariants
from tests.faults.traffic import EventCount, Traffic, ask

SETTLE_SECONDS = 240.0
LOOK_SECONDS = 2.0
CLIENTS = 3

_clock = SystemClock()


@dataclass(frozen=True)
class Plan:
    """How to walk. ``breath``: seconds between two pauses in which everything must come to rest."""

    faults: Iterator[Fault]
    seconds: float
    breath: float


@dataclass
class Walk:
    """One walk in a house; ``figures`` at the end."""

    house: House
    tape: Path
    seen: Invariants = field(default_factory=Invariants)
    injected: Counter[str] = field(default_factory=Counter)
    void: Counter[str] = field(default_factory=Counter)
    survived: int = 0
    rests: int = 0
    heard: int = 0

    async def run(self, how: Plan) -> None:
        """Walk to the end, then take everything down and look at what is left."""
        self._out = self.tape.open("wb")
        self._tasks = Supervisor("walk")
        self.hands = Hands(self.house, self.seen)
        self.events = EventCount()
        self.traffic = Traffic(tuple(self.house.proxy_url(name) for name in ("proxy-a", "proxy-b")))
        try:
            self._watch()
            for slot in ("m0", "m2", "m3"):
                await self.hands.inject(Fault(kind="create", target=slot, gap=0))
            for number in range(CLIENTS):
                self._tasks.once("client", self.traffic.client(number))
            self._tasks.once("look", self._look())
            await self._rest()
            await self._walk(how)
            await self._end()
        finally:
            await self._tasks.close()
            self._out.close()

    # --- watching ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        for resource in WATCHED:
            self._tasks.forever(resource.plural, Informer(self.house.kube, resource, self._on_kube).run)
        self._tasks.once("bus", self.house.bus.follow(FOLLOWED, self._on_bus))
        self._tasks.once("all", self.house.bus.follow([topic.data for topic in TOPICS.values()], self._count))

    def _on_kube(self, fact: KubeFact) -> None:
        at = _clock.now()
        self._write(encode_line(at, fact))
        self.seen.kube(at, fact)

    def _on_bus(self, fact: BusFact) -> None:
        at = _clock.now()
        self._write(encode_line(at, fact))
        self.seen.bus(at, fact)

    def _count(self, _fact: BusFact) -> None:
        self.heard += 1

    def _write(self, line: bytes) -> None:
        self._out.write(line + b"\n")

    async def _look(self) -> None:
        while True:
            at = _clock.now()
            self._write(_line(at, "look", {}))
            self.seen.tick(at)
            await self.events.look([program for program in self.house.programs.values() if program.ops])
            await asyncio.sleep(LOOK_SECONDS)

    # --- walking -----------------------------------------------------------------------------------------------

    async def _walk(self, how: Plan) -> None:
        ends = time.monotonic() + how.seconds
        while time.monotonic() < ends:
            until = min(ends, time.monotonic() + how.breath)
            self.hands.calm.clear()
            working = set()
            while time.monotonic() < until:
                fault = next(how.faults, None)
                if fault is None:
                    ends = 0.0
                    break
                await asyncio.sleep(fault.gap)
                self._write(_line(_clock.now(), "fault", fault))
                working.add(self._tasks.once(fault.kind, self._inject(fault)))
            self.hands.calm.set()
            if working:
                await asyncio.wait(working)
            await self._rest()

    async def _inject(self, fault: Fault) -> None:
        (self.injected if await self.hands.inject(fault) else self.void)[fault.kind] += 1

    async def _rest(self) -> None:
        """Mend everything and wait until the system is at rest; what is not by then is broken."""
        await self.house.mend()
        await self.house.api_answers()
        await self.house.ready()
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while await self._unrest():  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(0.5)
        except TimeoutError:
            self._say(f"no rest in {SETTLE_SECONDS:.0f} s: {await self._unrest()}")
            return
        self.rests += 1
        self.survived = self.injected.total()

    def _say(self, text: str) -> None:
        self.seen.broken.append(f"{_clock.now():.3f} {text}")
        sys.stderr.write(f"{self.seen.broken[-1]}\n")

    async def _unrest(self) -> str:
        """What is still moving, empty if nothing is."""
        for (namespace, name), obj in self.seen.models.items():
            status, meta = obj.get("status") or {}, obj["metadata"]
            engines, phase = self.seen.engines(obj), status.get("phase")
            told = f"{namespace}/{name} is {phase}: {status.get('readyReplicas')} ready, {len(engines)} seen ready"
            if meta.get("deletionTimestamp") or status.get("observedGeneration") != meta["generation"]:
                return f"{told}, {meta.get('deletionTimestamp')}, {status.get('observedGeneration')}"
            if phase not in {"Running", "Idle"} or len(engines) != (status.get("readyReplicas") or 0):
                return f"{told}; {status.get('conditions')}"
        if self.seen.orphans() or self.seen.unrecorded():
            return f"orphans {self.seen.orphans()}, unrecorded {self.seen.unrecorded()}"
        return await self._unserved()

    async def _unserved(self) -> str:
        try:
            events = await self.house.bus.state((ModelEndpoint,))
        except (BusUnavailable, BusRefused) as err:
            return str(err)
        told = {(e.data.namespace, e.data.model): e.data for e in events if isinstance(e.data, ModelEndpoint)}
        for (namespace, name), obj in list(self.seen.models.items()):
            if obj["status"]["phase"] != "Running":
                continue
            route = told.get((namespace, name))
            ready = {place.pod for place in route.endpoints if place.state == "ready"} if route else set()
            if ready != {pod["metadata"]["name"] for pod in self.seen.engines(obj)}:
                return f"{namespace}/{name} is Running, and the bus tells of {ready or 'no ready endpoint'}"
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
                for url in self.traffic.urls:
                    status = await ask(session, url, f"{namespace}/{name}")
                    if status != "200":
                        return f"{namespace}/{name} is Running and answers {status}"
        return ""

    # --- the end -----------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Every model is deleted; nothing of them stays but their results."""
        for namespace, name in list(self.seen.models):
            with suppress(NotFound):
                await self.house.kube.delete(MODELDEPLOYMENTS, name, namespace)
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while await self._left():  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(0.5)
        except TimeoutError:
            self._say(f"left over at the end: {await self._left()}")
        if self.seen.unrecorded():
            self._say(f"results were lost: {sorted(self.seen.unrecorded())}")

    async def _left(self) -> str:
        objects = [f"{kind} {'/'.join(name)}" for kind, found in (
            ("model", self.seen.models), ("pod", self.seen.pods), ("Job", self.seen.jobs),
        ) for name in found]  # fmt: skip
        objects += [f"claim {name}" for name in self.seen.claims]
        try:
            for resource in (DEPLOYMENTS, SERVICES):
                page = await self.house.kube.list(resource, labels="app.kubernetes.io/part-of=flexinfer")
                objects += [f"{resource.kind} {item['metadata']['name']}" for item in page.items]
        except KubeUnavailable as err:
            objects.append(str(err))
        for word in ("flexinfer.local.fleet.engine", "flexinfer-bench"):
            objects += [command for _, command in await asyncio.to_thread(children_in, self.house.folder, word)]
        return ", ".join(objects)

    def figures(self) -> dict[str, Any]:
        """What was done and counted."""
        answers = dict(sorted(self.traffic.answers.items()))
        return {
            "faults_injected": self.injected.total(),
            "faults_survived": self.survived,
            "faults_that_met_nothing": self.void.total(),
            "faults": dict(sorted(self.injected.items())),
            "rests": self.rests,
            "requests_sent": self.traffic.sent,
            "requests_answered": sum(count for status, count in answers.items() if status != "none"),
            "answers": answers,
            "events_published": self.events.sums().get("out", 0),
            "events_delivered": self.events.sums().get("in", 0),
            "events_heard_by_the_watcher": self.heard,
            "facts_judged": self.seen.facts,
            "phase_transitions": self.seen.transitions,
            "placements": self.seen.decisions,
            "benchmarks_completed": len(self.seen.completed),
            "broken": self.seen.broken,
        }


def _line(at: float, kind: str, body: object) -> bytes:
    return msgspec.json.encode({"at": at, "kind": kind, "body": body})


def judge(tape: Path) -> Invariants:
    """The facts of a tape, folded again: the same verdicts as during the walk."""
    seen = Invariants()
    for number, raw in enumerate(tape.read_bytes().splitlines(), 1):
        head = msgspec.json.decode(raw)
        if head["kind"] == "look":
            seen.tick(head["at"])
        elif head["kind"] != "fault":
            at, fact = decode_line(raw, number)
            if isinstance(fact, Relisted | KubeDelta):
                seen.kube(at, fact)
            else:
                seen.bus(at, fact)  # type: ignore[arg-type] - no other kinds were written
    return seen


def faults_of(tape: Path) -> Iterator[Fault]:
    """The faults of a tape, in order."""
    for raw in tape.read_bytes().splitlines():
        head = msgspec.json.decode(raw)
        if head["kind"] == "fault":
            yield msgspec.convert(head["body"], Fault)


def reservations_too_old(tapes: Path) -> tuple[int, list[str]]:
    """Replay what every extender of a walk was told: decisions, and reservations that outlived their limit."""
    broken, decisions = [], 0
    for path in sorted(tapes.glob("scheduler-*.jsonl*")):
        tape = read_tape(path)
        extender = SchedulerReplay(tape.header.settings)
        for at, fact in tape.facts:
            answer = extender.feed(at, fact)
            decisions += sum(1 for _ in extender.decided())
            if answer is None:
                continue
            for node in extender.view.nodes.values():
                broken += [
                    f"{at:.3f} {path.name}: {claim.name} holds {node.name} {at - claim.at:.1f} s past its time"
                    for claim in node.claims.values() if not claim.bound and claim.at <= at
                ]  # fmt: skip
    return decisions, broken


async def walk(folder: Path, how: Plan) -> Walk:
    """Build the house, walk, take it down, look for what stays."""
    house = await House(folder, record=True).start()
    made = Walk(house, folder / "walk.jsonl")
    try:
        await made.run(how)
    finally:
        await house.stop()
    left = await asyncio.to_thread(house.leftovers)
    made.seen.broken += [f"a process outlived the walk: {command}" for command in left]
    _, old = await asyncio.to_thread(reservations_too_old, house.tapes)
    made.seen.broken += old
    return made


def main() -> int:
    """0 if everything held."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--minutes", type=float, default=1.0)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--pace", type=float, default=2.0, help="mean seconds between two faults")
    command.add_argument("--longest", type=float, default=60.0, help="seconds that a fault may last")
    command.add_argument("--breath", type=float, default=90.0, help="seconds between two rests")
    command.add_argument("--folder", type=Path, help="where logs and tapes go; a temporary one unless given")
    command.add_argument("--tape", type=Path, help="do the faults of this tape instead of drawing them")
    command.add_argument("--check", type=Path, help="judge this tape and do nothing else")
    command.add_argument("--output", type=Path, help="write the figures here")
    args = command.parse_args()
    if args.check:
        broken = judge(args.check).broken
        print("\n".join(broken) or "everything held")  # noqa: T201 - a script
        return 1 if broken else 0
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="flexinfer-walk-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    faults = faults_of(args.tape) if args.tape else plan(args.seed, pace=args.pace, longest=args.longest)
    began, load = time.monotonic(), os.getloadavg()[0]
    made = asyncio.run(walk(folder, Plan(faults, args.minutes * 60, args.breath)))
    report = {
        "what": "random faults on a bus, an API server, two managers, an extender, two proxies, an agent and two "
        "machines of virtual nodes with benchmarks, all real processes; engines are throttled fakes",
        "command": f"python -m tests.faults.walk --minutes {args.minutes:g} --seed {args.seed} --pace {args.pace:g} "
        f"--longest {args.longest:g} --breath {args.breath:g}",
        "seed": args.seed, "minutes": args.minutes, "seconds_taken": round(time.monotonic() - began),
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
        "load_at_start_and_end": [round(load, 1), round(os.getloadavg()[0], 1)],
        **made.figures(),
    }  # fmt: skip
    text = json.dumps(report, indent=1)
    sys.stdout.write(text + "\n")
    if args.output:
        args.output.write_text(text + "\n")
    return 1 if made.seen.broken else 0


if __name__ == "__main__":
    sys.exit(main())
