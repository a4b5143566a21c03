"""The sums of all nodes of a request in one vector pass, equal to those of ``scoring.total`` to the last digit."""

from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from flexinfer.core.placement.boards import Board, Verdicts
from flexinfer.core.placement.names import Rows
from flexinfer.core.placement.ranking import ABSENT, Ranking
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import PARTS, UNIT, Scale, Weights, tps_share
from flexinfer.core.placement.speeds import Speeds

Sums = NDArray[np.int64]

COMPACT = 20  # a ranking this small keeps its own few offers; a larger one shares those of its moment


@dataclass(frozen=True, slots=True)
class Scores:
    """Answer of a prioritize call, in the order of ``asked``."""

    asked: Asked
    ranking: Ranking


def summed(board: Board, rows: Rows, speeds: Speeds, weights: Weights, entries: frozenset[str]) -> tuple[Scale, Sums]:
    """What the nodes at ``rows``, which all pass, are normalised by, and their sums in scoring.UNIT.

    The operations and their order are those of the plain form, so each rounding is the same.
    """
    classes = board.classes.take(rows)
    present = np.flatnonzero(np.bincount(classes, minlength=len(board.kinds))).tolist()
    found = {number: speeds.of(*board.kinds[number]) for number in present}
    measured = [speed.tokens_per_second for speed in found.values() if speed is not None and not speed.estimated]
    costs = board.costs.take(rows)
    unpriced = np.isnan(costs)
    priced = costs[~unpriced]
    dearest = float(priced.max()) if len(priced) else None
    middle = 0.0
    if dearest and len(priced) < len(costs):
        middle = median((100 * priced / dearest).tolist())
    scale = Scale(max(measured, default=None), dearest, middle, entries)
    shares = np.zeros(len(board.kinds))
    for number, speed in found.items():
        shares[number] = weights.tps * tps_share(speed, scale)
    total = shares.take(classes)
    total -= weights.util * board.util.take(rows)
    if dearest:
        total -= weights.cost * np.where(unpriced, middle, 100 * costs / dearest)
    total -= weights.kv_cache * board.kv.take(rows)
    total += weights.vram_free * board.ratios.take(rows)
    if weights.cache and entries:
        total += weights.cache * board.shelf(entries).take(rows)
    total *= PARTS
    np.rint(total, out=total)
    sums = total.astype(np.int64)
    sums *= UNIT // PARTS
    return scale, sums


def ranked(board: Board, rows: Rows, speeds: Speeds, weights: Weights, entries: frozenset[str]) -> Ranking:
    """The nodes at ``rows``, which all pass, as they are now."""
    scale, sums = summed(board, rows, speeds, weights, entries)
    found = Ranking(board.roster.names, board.offers, rows, scale, sums)
    found.measure()
    if len(rows) <= COMPACT:
        return found.compact()
    found.offers = board.snapshot()
    return found


def scored(passing: Verdicts, ranking: Ranking) -> Scores:
    """``ranking`` of those that pass, spread over all that were asked about."""
    if passing.keeps is None:
        return Scores(passing.asked, ranking)
    sums = np.full(len(passing.keeps), ABSENT)
    sums[passing.keeps] = ranking.sums
    spread = replace(ranking, known=passing.asked.known, offers=(), rows=passing.asked.rows, sums=sums)
    return Scores(passing.asked, spread)
