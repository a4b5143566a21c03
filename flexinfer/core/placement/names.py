"""Names in a JSON list found among known ones by vector operations, without making a string of any of them.

A request names thousands of nodes, in an order that is new each time. Decoding the list and looking each string up
costs several times what reading the bytes costs, so here the bytes themselves are looked up: each name with its
quotes is one fixed-width record, found by hash and compared as a whole. The answer is exact; a list that holds
anything else than known names, written as Go writes them, is left to the plain decoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
_Words = NDArray[np.uint64]

MAX_WIDTH = 128  # bytes of a name with its quotes; longer ones are left to the plain decoder
_WORD = 8
_SPARSE = 8  # slots of the hash table for each name
_COMMA = ord(",")
_ODD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: spreads what differs in few bits
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Listing:
    """``rows`` of the names in a list. ``bounds``: where each begins in its bytes, and where the last one ends, one
    separator included."""

    rows: Rows
    bounds: Rows


class NameTable:
    """Looks up lists of the names it was made of."""

    def __init__(self, names: Sequence[str]) -> None:
        tokens = [msgspec.json.encode(name) for name in names]
        short = [b"" if len(token) > MAX_WIDTH or b"," in token else token for token in tokens]
        self.size = len(names)
        self._width = -(-max(map(len, short), default=_WORD) // _WORD) * _WORD or _WORD
        words = self._width // _WORD
        self._records: _Words = np.array(short, dtype=f"S{self._width}").view("<u8").reshape(-1, words)
        self._keys = np.array([pow(_ODD, 2 * place + 1, 1 << 64) for place in range(words)], dtype="<u8")
        # For each length a mask that clears what follows the name.
        kept = np.arange(self._width) < np.arange(self._width + 1)[:, None]
        self._masks: _Words = np.where(kept, np.uint8(255), np.uint8(0)).view("<u8").reshape(-1, words)
        bits = max(self.size * _SPARSE, 2).bit_length()
        self._shift = np.uint64(64 - bits)
        slots = self._slots(self._records)
        order = np.argsort(slots, kind="stable")
        self._heads: Rows = np.full(1 << bits, -1, dtype=np.intp)
        self._heads[slots[order][::-1]] = order[::-1]  # the first of each slot is written last
        same = slots[order][1:] == slots[order][:-1]
        self._next: Rows = np.full(self.size, -1, dtype=np.intp)
        self._next[order[:-1][same]] = order[1:][same]

    def find(self, raw: bytes) -> Listing | None:
        """``raw`` is a JSON array without white space; None if it holds anything but names of this table."""
        if not self.size or len(raw) < 4 or raw[:1] != b"[" or raw[-1:] != b"]":
            return None
        padded = raw + bytes(self._width)
        commas = np.flatnonzero(np.frombuffer(raw, dtype=np.uint8) == _COMMA)
        bounds = np.empty(len(commas) + 2, dtype=np.intp)
        bounds[0] = 1
        np.add(commas, 1, out=bounds[1:-1])
        bounds[-1] = len(raw)
        lengths = bounds[1:] - bounds[:-1] - 1
        if lengths.max() > self._width:
            return None
        windows: NDArray[np.void] = np.ndarray((len(raw),), f"V{self._width}", padded, strides=(1,))
        tokens: _Words = windows[bounds[:-1]].view("<u8").reshape(len(lengths), -1)
        tokens &= self._masks.take(lengths, axis=0)
        rows = self._lookup(tokens)
        return None if rows is None else Listing(rows, bounds)

    def _lookup(self, tokens: _Words) -> Rows | None:
        rows = self._heads.take(self._slots(tokens))
        wrong = np.flatnonzero(self._differ(rows, tokens))
        while len(wrong):  # names that share a slot: the next in its chain
            rows[wrong] = self._next.take(rows[wrong])
            found = rows[wrong]
            if found.min() < 0:
                return None
            wrong = wrong[self._differ(found, tokens[wrong])]
        return None if rows.min() < 0 else rows

    def _slots(self, tokens: _Words) -> Rows:
        mixed = tokens @ self._keys
        mixed ^= mixed >> _HALF
        mixed *= np.uint64(_ODD)
        mixed >>= self._shift
        slots: Rows = mixed.astype(np.intp)
        return slots

    def _differ(self, rows: Rows, tokens: _Words) -> NDArray[np.bool_]:
        # Row -1 is nobody; it reads the last record, and an equal one there would be found under its own slot.
        unlike = self._records.take(rows, axis=0) ^ tokens
        found = unlike[:, 0].copy()
        for place in range(1, unlike.shape[1]):
            found |= unlike[:, place]
        differ: NDArray[np.bool_] = found != 0
        return differ
