"""Node names as numbers, and the nodes of a request.

Looking a name up is most of what a request over thousands of names costs. It is done once per list; everything known
of nodes is kept in columns beside the roster and picked from them by position.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any, TypeVar

T = TypeVar("T")

KEPT_MEMOS = 32


class Roster:
    """Every name ever asked about, numbered in that order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.index: dict[str, int] = {}
        self._columns: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self.names)

    def positions(self, names: Sequence[str]) -> list[int]:
        """Of these names, numbering new ones."""
        try:
            return list(map(self.index.__getitem__, names))
        except KeyError:
            for name in names:
                if name not in self.index:
                    self.index[name] = len(self.names)
                    self.names.append(name)
            return list(map(self.index.__getitem__, names))

    def column(self, key: str, make: Callable[[str], T]) -> list[T]:
        """``make(name)`` for each name, made once."""
        found = self._columns.setdefault(key, [])
        if len(found) < len(self.names):
            found.extend(map(make, self.names[len(found) :]))
        return found


class Asked:
    """The nodes of a request, without repeats: kube-scheduler would sum up the scores of a name given twice.

    ``untouched``: there were none. ``memo`` holds what was derived from exactly these nodes. Complete after ``enrol``.
    """

    __slots__ = ("_getter", "_index", "_members", "memo", "names", "positions", "roster", "untouched")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.untouched = True
        self.positions: list[int] = []
        self.memo: dict[Any, Any] = {}
        self.roster: Roster | None = None
        self._getter: Callable[[Any], Any] | None = None
        self._members: set[str] | None = None
        self._index: dict[str, int] | None = None

    def enrol(self, roster: Roster) -> None:
        """Number the names and drop repeats; once."""
        if self.roster is roster:
            return
        self.roster = roster
        self._getter = None
        self.positions = roster.positions(self.names)
        if len(set(self.positions)) < len(self.positions):
            self.untouched = False
            self.positions = list(dict.fromkeys(self.positions))
        # The roster's own strings: those of the request can go, which keeps the memory of a request small and warm.
        self.names = self.pick(roster.names)

    def pick(self, column: Sequence[T]) -> Sequence[T]:
        """The entries of these nodes, in the order asked."""
        if len(self.positions) < 2:
            return [column[position] for position in self.positions]
        if self._getter is None:
            self._getter = itemgetter(*self.positions)
        picked: tuple[T, ...] = self._getter(column)
        return picked

    def parted(self, keeps: Sequence[bool]) -> tuple["Asked", list[str]]:
        """Those kept, and the names of the others, which are taken to be few."""
        kept = Asked(list(compress(self.names, keeps)))
        kept.roster = self.roster
        kept.positions = list(compress(self.positions, keeps))
        out: list[str] = []
        position = -1
        for _ in range(len(keeps) - len(kept.names)):
            position = keeps.index(False, position + 1)
            out.append(self.names[position])
        return kept, out

    def keep(self, key: Any, value: Any) -> None:
        """Remember something derived; a full memory starts again."""
        if len(self.memo) >= KEPT_MEMOS:
            self.memo.clear()
        self.memo[key] = value

    @property
    def members(self) -> set[str]:
        """The names as a set."""
        if self._members is None:
            self._members = set(self.names)
        return self._members

    @property
    def index(self) -> dict[str, int]:
        """Where in the request a name stands."""
        if self._index is None:
            self._index = {name: position for position, name in enumerate(self.names)}
        return self._index
