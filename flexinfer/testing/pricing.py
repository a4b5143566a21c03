"""What placements cost: the price of each node per hour as the tape tells it, and of a million tokens there."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flexinfer.contracts.events import Candidate, PlacementDecided
from flexinfer.core.placement.scoring import told_speed
from flexinfer.runtime.journal import Tape
from flexinfer.testing.replay_scheduler import SchedulerReplay

UNPRICED = "unpriced"


@dataclass(frozen=True, slots=True)
class Placed:
    """One placement. ``best`` is its node, None if none fits; ``per_hour`` the price of the whole node and
    ``tokens_per_second`` what one request gets there, each None where it is not known."""

    at: float
    data: PlacementDecided
    best: Candidate | None
    per_hour: float | None
    tokens_per_second: float | None

    @property
    def node(self) -> str:
        """Where it goes; empty for nowhere."""
        return self.best.node if self.best else ""

    @property
    def per_million(self) -> float | None:
        """The price of a million tokens, one request after the other."""
        return per_million(self.per_hour, self.tokens_per_second)


def per_million(per_hour: float | None, tokens_per_second: float | None) -> float | None:
    """The price of a million tokens in the unit of the price; None if either is not known or nothing is served."""
    if per_hour is None or not tokens_per_second:
        return None
    return per_hour / 3600.0 / tokens_per_second * 1e6


def placements(tape: Tape) -> Iterator[Placed]:
    """Every placement of an extender's tape, decided again, with the prices of its moment."""
    scheduler = SchedulerReplay(tape.header.settings)
    for at, fact in tape.facts:
        scheduler.feed(at, fact)
        for decided in scheduler.decided():
            best = decided.candidates[0] if decided.candidates else None
            node = scheduler.view.nodes.get(best.node) if best else None
            speed = next((told_speed(term.note) for term in best.terms if term.name == "tps"), None) if best else None
            yield Placed(at, decided, best, node.cost if node else None, speed)


@dataclass(frozen=True, slots=True)
class Bill:
    """What the last placement of each pod costs together. ``per_hour`` counts each node once, those with a price;
    ``per_million`` is that of the pods whose node has a price and a speed, by the tokens/s of all of them."""

    pods: int
    nodes: int
    per_hour: float
    per_million: float | None
    unpriced: tuple[str, ...]

    @property
    def line(self) -> str:
        """``3 pods on 2 nodes: 1.60 per hour, 2.10 per million tokens; unpriced: b``."""
        text = f"{self.pods} pods on {self.nodes} nodes: "
        if self.nodes and len(self.unpriced) == self.nodes:
            return text + UNPRICED
        text += f"{money(self.per_hour)} per hour, {money(self.per_million)} per million tokens"
        return text + (f"; {UNPRICED}: {', '.join(self.unpriced)}" if self.unpriced else "")


def bill(placed: Iterable[Placed]) -> Bill:
    """The sum of the last placement of each pod that got a node."""
    last = {(one.data.namespace, one.data.pod): one for one in placed if one.best}
    prices = {one.node: one.per_hour for one in last.values()}
    known = [one for one in last.values() if one.per_million is not None]
    hourly = sum({one.node: one.per_hour or 0.0 for one in known}.values())
    return Bill(
        len(last), len(prices), sum(price for price in prices.values() if price is not None),
        per_million(hourly, sum(one.tokens_per_second or 0.0 for one in known)) if known else None,
        tuple(sorted(node for node, price in prices.items() if price is None)),
    )  # fmt: skip


def money(amount: float | None) -> str:
    """Two figures behind the point, more for little."""
    if amount is None:
        return UNPRICED
    return f"{amount:.2f}" if amount >= 0.1 or amount == 0 else f"{amount:.3g}"
