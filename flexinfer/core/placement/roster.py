"""Node names as numbers, and the nodes of a request.

Looking names up is most of what a request over thousands of them costs. It is done once per list; everything known of
nodes is kept in columns beside the roster and picked from them by position.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexinfer.core.placement.names import Listing, NameTable, Rows

KEPT_MEMOS = 32
SHORT = 1 << 13  # bytes of a list


class Roster:
    """Every name ever asked about, numbered in that order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.index: dict[str, int] = {}
        self._table = NameTable(())
        self._ranks: Rows = np.empty(0, dtype=np.intp)

    def __len__(self) -> int:
        return len(self.names)

    def positions(self, names: Sequence[str]) -> Rows:
        """Of these names, numbering new ones."""
        try:
            return self._known(names)
        except KeyError:
            for name in names:
                if name not in self.index:
                    self.index[name] = len(self.names)
                    self.names.append(name)
            return self._known(names)

    def _known(self, names: Sequence[str]) -> Rows:
        return np.fromiter(map(self.index.__getitem__, names), np.intp, len(names))

    def read(self, raw: bytes) -> Listing | None:
        """Positions of the names in a JSON list; None if it has a new one, or is not written as Go writes it, or is
        so short that decoding it is faster."""
        if len(raw) < SHORT:
            return None
        found = self._table.find(raw)
        if found is None and self._table.size < len(self.names):
            self._table = NameTable(self.names)
            found = self._table.find(raw)
        return found

    def prepare(self) -> None:
        """Do now what the first request would have to."""
        self._table = NameTable(self.names)
        self.ranks()

    def ranks(self) -> Rows:
        """For each position the place of its name among all in alphabetical order."""
        if len(self._ranks) < len(self.names):
            order = sorted(range(len(self.names)), key=self.names.__getitem__)
            self._ranks = np.empty(len(order), dtype=np.intp)
            self._ranks[order] = np.arange(len(order))
        return self._ranks


class Asked:
    """The nodes of a request, without repeats: kube-scheduler would sum up the scores of a name given twice.

    ``rows``: their positions in ``roster``, known after ``enrol``. ``untouched``: there were no repeats. ``bounds``:
    of the names in the bytes received, if these were read without decoding. ``memo`` holds what was derived from
    exactly these nodes.
    """

    __slots__ = ("_names", "bounds", "memo", "roster", "rows", "untouched")

    def __init__(self, names: Sequence[str] | None) -> None:
        self._names = names
        self.untouched = True
        self.rows: Rows = np.empty(0, dtype=np.intp)
        self.bounds: Rows | None = None
        self.memo: dict[Any, Any] = {}
        self.roster: Roster | None = None

    @classmethod
    def of(cls, roster: Roster, rows: Rows, bounds: Rows | None = None) -> "Asked":
        """Of names already numbered."""
        found = cls(None)
        found.bounds = bounds
        found._take(roster, rows)
        return found

    def some(self, keeps: NDArray[np.bool_]) -> "Asked":
        """Those for which ``keeps`` is true."""
        found = Asked(None)
        found.roster, found.rows = self.roster, self.rows[keeps]
        return found

    def enrol(self, roster: Roster) -> None:
        """Number the names and drop repeats; once for each roster."""
        if self.roster is not roster:
            self._take(roster, roster.positions(self.names))

    def _take(self, roster: Roster, rows: Rows) -> None:
        self.roster = roster
        self.memo.clear()
        seen = np.zeros(len(roster), dtype=np.bool_)
        seen[rows] = True
        if np.count_nonzero(seen) < len(rows):
            self.untouched = False
            self.bounds = None
            _, first = np.unique(rows, return_index=True)
            rows = rows[np.sort(first)]
        self.rows = rows
        if not self.untouched:
            self._names = None

    def __len__(self) -> int:
        return len(self.rows) if self._names is None else len(self._names)

    @property
    def names(self) -> Sequence[str]:
        """In the order asked; before ``enrol`` as received."""
        if self._names is not None:
            return self._names
        known = self.known
        return [known[row] for row in self.rows.tolist()]

    @property
    def known(self) -> Sequence[str]:
        """Names by position in the roster."""
        return self.roster.names if self.roster is not None else ()

    def keep(self, key: Any, value: Any) -> None:
        """Remember something derived; a full memory starts again."""
        if len(self.memo) >= KEPT_MEMOS:
            self.memo.clear()
        self.memo[key] = value
