"""Decisions compared: those recorded with those decided again, and those of one policy with those of another."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import Candidate, PlacementDecided
from flexinfer.core.placement.scoring import TERMS
from flexinfer.runtime.effect_lines import effect_body
from flexinfer.runtime.interpreter import Outcome
from flexinfer.runtime.journal import BadLine, Header, Tape
from flexinfer.runtime.tapes import tapes_of
from flexinfer.testing.pricing import UNPRICED, Bill, Placed, bill, money, placements
from flexinfer.testing.replay import Step, player

_encode = msgspec.json.Encoder(order="deterministic").encode
SHOWN_FIELDS = 12


@dataclass(frozen=True, slots=True)
class Recorded:
    """A decision as it was told then. ``data`` are plain values."""

    kind: str
    key: str
    data: Any


@dataclass(slots=True)
class Comparison:
    """``same`` decisions are byte for byte as recorded; ``changed`` hold (recorded, nearest now or None); ``more``
    were decided now and are on no tape, which is so for decisions the bus never carried."""

    same: int = 0
    changed: list[tuple[Recorded, Any]] = field(default_factory=list)
    more: int = 0


def recorded(tape: Tape, paths: Iterable[Path]) -> Iterator[Recorded]:
    """What the process of ``tape`` decided, as far as these tapes tell. Raises OSError, BadLine."""
    told: set[str] = set()
    if tape.header.component == "manager":
        for _, fact in tape.facts:
            if isinstance(fact, Outcome):
                yield Recorded("effect", "", msgspec.to_builtins(effect_body(fact.effect)))
        return
    source = f"/scheduler/{tape.header.instance}"
    first, last = (tape.facts[0][0], tape.facts[-1][0]) if tape.facts else (0.0, 0.0)
    for path in paths:
        for _, other in tapes_of(path):
            for _, fact in other.facts:
                if not isinstance(fact, Event) or fact.id in told or not isinstance(fact.data, PlacementDecided):
                    continue
                if fact.source.endswith(source) and first <= fact.at <= last:
                    told.add(fact.id)
                    data = fact.data
                    yield Recorded("placement", f"{data.namespace}/{data.pod}", msgspec.to_builtins(data))


def trace_of(path: Path) -> list[Recorded]:
    """The lines of a trace. Raises OSError, BadLine with the number of the line that is none."""
    found = []
    for number, raw in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            step = msgspec.json.decode(raw, type=Step)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise BadLine(number, f"this is no line of a trace: {err}") from err
        found.append(Recorded(step.kind, step.key, step.data))
    return found


def compare(then: Iterable[Recorded], now: Iterable[Step]) -> Comparison:
    """Each recorded decision with the decisions of its key, in their order; what comes twice must be decided twice."""
    waiting: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for step in now:
        waiting[_place(step.kind, step.key)].append(_encode(msgspec.to_builtins(step.data)))
    found = Comparison()
    for old in then:
        _settle(found, old, waiting[_place(old.kind, old.key)])
    found.more = sum(map(len, waiting.values()))
    return found


def _place(kind: str, key: str) -> tuple[str, str]:
    # A phase is told as an effect that publishes it, or by itself, and effects do not name their model.
    return ("effect", "") if kind in {"effect", "phase"} else (kind, key)


def _settle(found: Comparison, old: Recorded, waiting: list[bytes]) -> None:
    wishes = {_encode(old.data)}
    if isinstance(old.data, dict) and "data" in old.data:
        wishes.add(_encode(old.data["data"]))
    position = next((number for number, raw in enumerate(waiting) if raw in wishes), None)
    if position is not None:
        del waiting[position]
        found.same += 1
        return
    found.changed.append((old, _nearest(old, waiting)))


def _nearest(old: Recorded, waiting: list[bytes]) -> Any:
    """The first decision about the same thing, taken from those that wait."""
    for position, raw in enumerate(waiting):
        data = msgspec.json.decode(raw)
        if what_of(data) == what_of(old.data):
            del waiting[position]
            return data
    return None


def what_of(data: Any) -> str:
    """``Create ConfigMap default/name``: what a decision is about; empty for placements and routes."""
    if not isinstance(data, dict) or "do" not in data:
        return ""
    meta = (data.get("body") or {}).get("metadata") or {}
    told = data.get("data") or {}
    parts = (
        data["do"], data.get("type"), (data.get("resource") or {}).get("kind"), data.get("subresource"),
        data.get("namespace") or meta.get("namespace") or told.get("namespace"),
        data.get("name") or meta.get("name") or told.get("model"),
    )  # fmt: skip
    return " ".join(str(part) for part in parts if part)


def fields(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Each field that differs: ``candidates[0].sum: 12.5 → 9.25``."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from fields(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for position, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from fields(a, b, f"{path}[{position}]")
    elif old != new:
        yield f"{path}: {_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    text = _encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, slots=True)
class Other:
    """A placement that other weights would have decided otherwise. ``lost``: points of the recorded ranking that the
    other node is behind the recorded one; None when it was no candidate then."""

    then: Placed
    now: Placed | None
    lost: float | None

    @property
    def at(self) -> float:
        """When it was decided, Unix seconds."""
        return self.then.at

    @property
    def line(self) -> str:
        """``default/pod: a → b, 6.3 points behind; speed ...; 1.20 → 0.40 per hour, ...``."""
        then, now = self.then.best, self.now.best if self.now else None
        names = [candidate.node if candidate else "no node" for candidate in (then, now)]
        text = f"{self.then.data.namespace}/{self.then.data.pod}: {names[0]} → {names[1]}"
        if self.lost is not None:
            text += f", {self.lost:.1f} points behind by the recorded weights"
        return text + "".join(_change(name, then, now) for name in _WORDS) + self._price()

    def _price(self) -> str:
        if self.now is None or self.then.best is None or self.now.best is None:
            return ""
        if self.then.per_hour is None and self.now.per_hour is None:
            return f"; {UNPRICED}"
        hour = f"{money(self.then.per_hour)} → {money(self.now.per_hour)} per hour"
        return f"; {hour}, {money(self.then.per_million)} → {money(self.now.per_million)} per million tokens"

    def document(self) -> dict[str, Any]:
        """For programs; None where a price is not known."""
        told = {
            name: {"node": one.node, "costPerHour": one.per_hour, "costPerMillionTokens": one.per_million}
            for name, one in (("then", self.then), ("now", self.now)) if one is not None
        }  # fmt: skip
        data = self.then.data
        return {"at": self.at, "namespace": data.namespace, "pod": data.pod, "pointsBehind": self.lost, **told}


@dataclass(frozen=True, slots=True)
class Changes:
    """Placements that change, of how many, and what all of them cost then and would cost."""

    others: tuple[Other, ...]
    count: int
    then: Bill
    now: Bill


_WORDS = {"tps": "speed", "util": "load", "cost": "price", "vramFree": "free memory", "cache": "weights there"}
_UNITS = {"tps": " % of the best", "util": " %", "cost": " % of the dearest", "vramFree": "", "cache": " %"}


def _change(name: str, then: Candidate | None, now: Candidate | None) -> str:
    values = [next((t for t in c.terms if t.name == name), None) if c else None for c in (then, now)]
    old, new = values
    if old is None or new is None or old.value == new.value:
        return ""
    notes = f" ({old.note} → {new.note})" if name == "tps" and old.note != new.note else ""
    return f"; {_WORDS[name]} {old.value:.4g} → {new.value:.4g}{_UNITS[name]}{notes}"


def under(tape: Tape, weights: dict[str, float]) -> Tape:
    """The same tape recorded with other weights, by the names ``parse_weights`` gives. Raises ValueError."""
    names = {name: f"weight_{field}" for term, field in TERMS.items() for name in (term, field)}
    unknown = sorted(set(weights) - set(names))
    if unknown:
        raise ValueError(f"no weight {unknown[0]!r}; weights are {', '.join(TERMS)}")
    settings = tape.header.settings | {names[name]: value for name, value in weights.items()}
    head = tape.header
    header = Header(
        tape="flexinfer", version=head.version, component=head.component, instance=head.instance,
        release=head.release, started=head.started, settings=settings,
    )  # fmt: skip
    return Tape(header, tape.facts, tape.bad)


def otherwise(tape: Tape, weights: dict[str, float]) -> Changes:
    """Placements that change under other weights, and their price. Later ones see the load of earlier ones.

    Raises ValueError for unknown weights or settings that make no sense, NotReplayable.
    """
    player(tape.header)
    if tape.header.component != "scheduler":
        return Changes((), 0, bill(()), bill(()))
    then, now = (_placements(found) for found in (tape, under(tape, weights)))
    found = []
    for key, old in then.items():
        new = now.get(key)
        if old.node != (new.node if new else ""):
            found.append(Other(old, new, _lost(old.data, new.best if new else None)))
    return Changes(tuple(found), len(then), bill(then.values()), bill(now.values()))


def _placements(tape: Tape) -> dict[tuple[str, int], Placed]:
    counts: dict[str, int] = defaultdict(int)
    found = {}
    for placed in placements(tape):
        key = f"{placed.data.namespace}/{placed.data.pod}"
        found[key, counts[key]] = placed
        counts[key] += 1
    return found


def _lost(data: PlacementDecided, other: Candidate | None) -> float | None:
    if other is None:
        return None
    behind = next((candidate for candidate in data.candidates if candidate.node == other.node), None)
    return data.candidates[0].sum - behind.sum if behind else None


def until(tape: Tape, moment: float) -> Tape:
    """The tape up to and including ``moment``, Unix seconds."""
    return replace_facts(tape, [(at, fact) for at, fact in tape.facts if at <= moment])


def replace_facts(tape: Tape, facts: Iterable[tuple[float, Any]]) -> Tape:
    """The same header with other facts."""
    return Tape(tape.header, tuple(facts), tape.bad)


def about(step: Step, node: str) -> bool:
    """Whether a node has a part in a decision: as candidate, target, address."""
    return b'"' + node.encode() + b'"' in step.line()


__all__ = [
    "Changes", "Comparison", "Other", "Recorded", "about", "compare", "fields", "otherwise", "recorded", "trace_of",
    "under", "until",
]  # fmt: skip
