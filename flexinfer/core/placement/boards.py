"""Offers kept ready between requests, renewed only where a fact changed, and the filter's answer from them.

The numbers of all offers lie in columns, so that a request over thousands of names is a few vector operations. What a
board answers is what ``ranking`` computes from nothing; a test holds them together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexinfer.contracts.events import NodeHardware
from flexinfer.core.fleet.view import FleetView, NodeView
from flexinfer.core.placement.checks import NO_SIZE, NO_VRAM, REASONS, TOO_SMALL, Reason
from flexinfer.core.placement.demand import Kind
from flexinfer.core.placement.names import Rows
from flexinfer.core.placement.offers import OUT, Fit, Offer, fit_of, offer_of
from flexinfer.core.placement.roster import Asked, Roster
from flexinfer.core.placement.scoring import cache_share

Codes = NDArray[np.uint8]
NOWHERE: Rows = np.empty(0, dtype=np.intp)
Floats = NDArray[np.float64]

# Reasons as numbers; 0 is none.
_NUMBER = {reason: number for number, reason in enumerate(REASONS, 1)}
_PASSES = 0
_SPARE = 64
PAGE = 64  # offers copied together when one of them changed
KEPT_SHELVES = 16  # sets of weights asked for


@dataclass(frozen=True, slots=True)
class Pages:
    """Offers of one moment; what did not change since another moment is shared with it."""

    pages: tuple[tuple[Offer, ...], ...]

    def __getitem__(self, row: int) -> Offer:
        return self.pages[row // PAGE][row % PAGE]


class Board:
    """Offers of all nodes of a roster for one kind of demand. Call ``refresh`` before reading.

    Columns by position in the roster, some entries longer than it: ``capacities`` and ``installed`` in MiB, ``util``
    and ``kv`` on 0..100, ``ratios`` on 0..1, ``costs`` (NaN: no price), ``classes`` (into ``kinds``: device class and
    driver), ``reasons``, ``stamps`` (the version that brought the offer). ``asked_at``: when a request last needed the
    board. ``version`` changes with any offer, ``form`` when more changed than figures of load and memory: what others
    are held against.
    """

    def __init__(self, view: FleetView, roster: Roster, kind: Kind) -> None:
        self.kind = kind
        self.roster = roster
        self.offers: list[Offer] = []
        self.kinds: list[tuple[str, str]] = []
        self.asked_at = -inf
        self.version = 0
        self.form = 0
        self.capacities: Floats = np.full(_SPARE, OUT)
        self.installed: Floats = np.full(_SPARE, OUT)
        self.util: Floats = np.zeros(_SPARE)
        self.kv: Floats = np.zeros(_SPARE)
        self.ratios: Floats = np.zeros(_SPARE)
        self.costs: Floats = np.full(_SPARE, nan)
        self.classes: NDArray[np.intp] = np.zeros(_SPARE, dtype=np.intp)
        self.reasons: Codes = np.zeros(_SPARE, dtype=np.uint8)
        self.stamps: NDArray[np.int64] = np.zeros(_SPARE, dtype=np.int64)
        self._shelves: dict[frozenset[str], Floats] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._view = view
        self._seen = view.changes.count
        self._fits: dict[int, tuple[NodeHardware | None, Fit | Reason | None]] = {}
        self._pages: list[tuple[Offer, ...] | None] = []

    def refresh(self, now: float) -> None:
        """Renew the offers of nodes that changed, make those of nodes new to the roster."""
        changed = self._view.changes.since(self._seen)
        self._seen = self._view.changes.count
        known, index = len(self.offers), self.roster.index
        if changed is None:
            changed = self.roster.names[:known]
        elif not changed and known == len(self.roster):
            return
        self.version += 1
        for name in set(changed):
            row = index.get(name, known)
            if row < known:
                self._replace(row, self._renew(row, name, now))
        if known < len(self.roster):
            self.form += 1
            self._grow(len(self.roster))
            for row in range(known, len(self.roster)):
                self.offers.append(self._renew(row, self.roster.names[row], now))
            self.stamps[known : len(self.offers)] = self.version
            self._pages[known // PAGE :] = [None] * (-(-len(self.offers) // PAGE) - known // PAGE)

    def _replace(self, row: int, offer: Offer) -> None:
        old, self.offers[row] = self.offers[row], offer
        self.stamps[row] = self.version
        self._pages[row // PAGE] = None
        if (old.reason, old.cost, old.device_class, old.driver_major, old.cached) != (
            offer.reason, offer.cost, offer.device_class, offer.driver_major, offer.cached,
        ):  # fmt: skip
            self.form += 1

    def snapshot(self) -> Pages:
        """All offers as they are now, by position in the roster."""
        for number, page in enumerate(self._pages):
            if page is None:
                self._pages[number] = tuple(self.offers[number * PAGE : (number + 1) * PAGE])
        return Pages(tuple(page or () for page in self._pages))

    def shelf(self, entries: frozenset[str]) -> Floats:
        """The column of ``scoring.cache_share`` for these weights, made when first asked for."""
        found = self._shelves.get(entries)
        if found is None:
            if len(self._shelves) >= KEPT_SHELVES:
                self._shelves.clear()
            found = self._shelves[entries] = np.zeros(len(self.capacities))
            found[: len(self.offers)] = [cache_share(offer.cached, entries) for offer in self.offers]
        return found

    def _grow(self, size: int) -> None:
        if size <= len(self.capacities):
            return
        self._shelves.clear()
        for name in ("capacities", "installed", "util", "kv", "ratios", "costs", "classes", "reasons", "stamps"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate((old, np.zeros(2 * size - len(old), dtype=old.dtype))))

    def _renew(self, row: int, name: str, now: float) -> Offer:
        node = self._view.nodes.get(name) or NodeView(name)
        hardware, fit = self._fits.get(row, (None, None))
        if fit is None or hardware is not node.hardware:
            fit = fit_of(node.hardware, self.kind) if self.kind.devices else None
            self._fits[row] = (node.hardware, fit)
        offer = offer_of(node, self.kind, now, fit=fit)
        self.capacities[row] = offer.capacity
        self.installed[row] = offer.installed
        if offer.reason is not None:
            self.reasons[row] = _NUMBER[offer.reason]
            return offer
        self.reasons[row] = _PASSES
        self.util[row] = offer.util
        self.kv[row] = offer.kv
        self.ratios[row] = offer.ratio
        self.costs[row] = nan if offer.cost is None else offer.cost
        for entries, shelf in self._shelves.items():
            shelf[row] = cache_share(offer.cached, entries)
        key = (offer.device_class, offer.driver_major)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.kinds)
            self.kinds.append(key)
        self.classes[row] = number
        return offer


@dataclass(slots=True)
class Verdicts:
    """Of a filter call. ``survivors``: those that passed, in the order asked. ``keeps``: for each asked whether it
    passed; None: all did. ``places``: of the others among those asked, ``out``: their positions in the roster,
    ``codes``: their reasons as numbers. ``version``: of the board for which this was last found true."""

    asked: Asked
    survivors: Asked
    keeps: NDArray[np.bool_] | None = None
    places: Rows = field(default_factory=lambda: NOWHERE)
    out: Rows = field(default_factory=lambda: NOWHERE)
    codes: Codes = field(default_factory=lambda: np.empty(0, dtype=np.uint8))
    version: int = -1
    encoded: Any = None
    _reasons: dict[Reason, int] | None = None
    _counts: dict[str, int] | None = None

    @property
    def passed(self) -> Sequence[str]:
        """Names of the survivors."""
        if self.keeps is None:
            return self.asked.names
        return list(compress(self.asked.names, self.keeps.tolist()))

    @property
    def failed(self) -> dict[str, Reason]:
        """Name and reason of those that did not pass."""
        known, pairs = self.asked.known, zip(self.out.tolist(), self.codes.tolist(), strict=True)
        return {known[row]: REASONS[code - 1] for row, code in pairs}

    @property
    def counts(self) -> dict[str, int]:
        """Sentence → number of nodes rejected with it, most frequent first."""
        if self._counts is None:
            self._counts = {reason.text: number for reason, number in self.reasons.items()}
        return self._counts

    @property
    def reasons(self) -> dict[Reason, int]:
        """The same by reason."""
        if self._reasons is None:
            numbers = enumerate(np.bincount(self.codes).tolist())
            found = [(REASONS[code - 1], number) for code, number in numbers if number]
            self._reasons = dict(sorted(found, key=lambda pair: (-pair[1], pair[0].text)))
        return self._reasons


def verdicts(board: Board, asked: Asked, per_device_mib: float) -> Verdicts:
    """Who passes. The last answer for the same names is given again while no verdict among them changed."""
    key = (board, per_device_mib)
    last: Verdicts | None = asked.memo.get(key)
    if last is not None and last.version == board.version:
        return last
    keeps = board.capacities.take(asked.rows) >= per_device_mib
    if last is not None and _holds(last, board, keeps, per_device_mib):
        last.version = board.version
        return last
    if np.count_nonzero(keeps) == len(keeps):  # twice as fast as all()
        found = Verdicts(asked, asked)
    else:
        places = (~keeps).nonzero()[0]
        out = asked.rows.take(places)
        found = Verdicts(asked, asked.some(keeps), keeps, places, out, _codes(board, out, per_device_mib))
    found.version = board.version
    asked.keep(key, found)
    return found


def _holds(last: Verdicts, board: Board, keeps: NDArray[np.bool_], per_device_mib: float) -> bool:
    if last.keeps is None:
        return bool(keeps.all())
    return np.array_equal(last.keeps, keeps) and np.array_equal(
        last.codes, _codes(board, last.out, per_device_mib)
    )  # fmt: skip


def _codes(board: Board, out: Rows, per_device_mib: float) -> Codes:
    """``offers.refusal`` of those that are out, as numbers."""
    codes: Codes = board.reasons.take(out)
    installed = board.installed.take(out)
    fits = codes == _PASSES
    codes[fits] = _NUMBER[NO_VRAM]
    small = fits & (installed < per_device_mib)
    if np.count_nonzero(small):
        codes[small] = _NUMBER[TOO_SMALL]
        codes[small & (installed < 0)] = _NUMBER[NO_SIZE]
    return codes
