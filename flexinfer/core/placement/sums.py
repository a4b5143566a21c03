"""The sums of all nodes of a request in one vector pass, equal to those of ``scoring.total`` to the last digit."""

from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from flexinfer.core.placement.boards import Board, Verdicts
from flexinfer.core.placement.names import Rows
from flexinfer.core.placement.ranking import ABSENT, Ranking
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import PARTS, UNIT, Scale, Weights, exact, total, tps_share
from flexinfer.core.placement.speeds import Speeds

Sums = NDArray[np.int64]

FEW = 16  # offers that are added up one by one
COMPACT = 20  # a ranking this small keeps its own few offers; a larger one shares those of its moment


@dataclass(frozen=True, slots=True)
class Scores:
    """Answer of a prioritize call, in the order of ``asked``."""

    asked: Asked
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Standing:
    """Sums of the nodes of one list, as of a version and a form of the board."""

    version: int
    form: int
    scale: Scale
    sums: Sums


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


def _standing(board: Board, asked: Asked, speeds: Speeds, weights: Weights, entries: frozenset[str]) -> Standing:
    """Of nodes that all pass. Where a few offers changed since the last request about the same nodes, and nothing that
    the others are held against, only these are added up again, by the plain form."""
    key = (board, speeds, weights, entries)
    last: Standing | None = asked.memo.get(key)
    if last is not None and last.form == board.form:
        changed = (board.stamps.take(asked.rows) > last.version).nonzero()[0]
        if len(changed) <= FEW:
            scale, sums = last.scale, last.sums.copy()
            for place, row in zip(changed.tolist(), asked.rows.take(changed).tolist(), strict=True):
                offer = board.offers[row]
                sums[place] = exact(total(offer, speeds.of(offer.device_class, offer.driver_major), scale, weights))
            found = Standing(board.version, board.form, scale, sums)
            asked.keep(key, found)
            return found
    found = Standing(board.version, board.form, *summed(board, asked.rows, speeds, weights, entries))
    asked.keep(key, found)
    return found


def ranked(board: Board, asked: Asked, speeds: Speeds, weights: Weights, entries: frozenset[str]) -> Ranking:
    """The nodes asked about, which all pass, as they are now."""
    rows = asked.rows
    standing = _standing(board, asked, speeds, weights, entries)
    found = Ranking(board.roster.names, board.offers, rows, standing.scale, standing.sums)
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
