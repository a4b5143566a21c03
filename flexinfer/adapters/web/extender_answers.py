"""Answers of the extender protocol: PascalCase, in the form asked for, put together from bytes made once per node."""

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flexinfer.adapters.web.extender_wire import NodeQuery
from flexinfer.contracts.extender import MAX_SCORE, FilterResult, MetaVictims, PreemptionResult
from flexinfer.core.placement.boards import Codes, Verdicts
from flexinfer.core.placement.checks import REASONS
from flexinfer.core.placement.roster import Asked, Roster
from flexinfer.core.placement.sums import Scores

_Bytes = NDArray[np.uint8]

_encode = msgspec.json.Encoder().encode

_TEXTS = {reason: b":%b" % _encode(reason.text) for reason in REASONS}
_POINTS = tuple(b"%d}" % (MAX_SCORE - loss) for loss in range(MAX_SCORE + 1))
_WIDE = tuple(b"%2d" % (MAX_SCORE - loss) for loss in range(MAX_SCORE + 1))
_TENS = np.frombuffer(bytes(digits[0] for digits in _WIDE), dtype=np.uint8)
_ONES = np.frombuffer(bytes(digits[1] for digits in _WIDE), dtype=np.uint8)
FEW = 64  # nodes, for which copying records does not pay
WASTE = 2.0  # bytes written for each one needed, at most, before pieces are joined one by one


def _records(texts: Sequence[bytes]) -> _Bytes:
    """One row for each text, padded with spaces at its end."""
    width = max(map(len, texts), default=1)
    padded: NDArray[Any] = np.array([text.ljust(width) for text in texts], dtype=f"S{width}")
    return padded.view(np.uint8).reshape(-1, width)


_REST = b',"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":""}'
_SENTENCES = _records([b"", *(_TEXTS[reason] + b"," for reason in REASONS)])
_SAYINGS = (b"", *_TEXTS.values())
_FINALS = (False, *(reason.final for reason in REASONS))
_FINAL = np.array(_FINALS)


class Pieces:
    """Bytes of answers about the names of a roster.

    Long answers are copies of fixed-width records with spaces where a name is short: copying rows of a table is an
    order of magnitude faster than joining texts.
    """

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self._quoted: list[bytes] = []
        self._names: _Bytes | None = None
        self._hosts: _Bytes | None = None
        self._recorded = -1

    def failed(self, verdicts: Verdicts) -> tuple[bytes, bytes]:
        """``FailedNodes`` and ``FailedAndUnresolvableNodes``."""
        rows, codes = verdicts.out, verdicts.codes
        if not len(rows):
            return b"{}", b"{}"
        self._grow()
        if self._names is None or len(rows) < FEW:
            return self._few(rows.tolist(), codes.tolist())
        final, names = _FINAL.take(codes), self._names.take(rows, axis=0)
        return self._reasons(names[~final], codes[~final]), self._reasons(names[final], codes[final])

    def _few(self, rows: Sequence[int], codes: Sequence[int]) -> tuple[bytes, bytes]:
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        for row, code in zip(rows, codes, strict=True):
            parts[_FINALS[code]].append(self._quoted[row] + _SAYINGS[code])
        return b"{%b}" % b",".join(parts[0]), b"{%b}" % b",".join(parts[1])

    def priorities(self, scores: Scores) -> bytes:
        """HostPriorityList, scores as integers."""
        rows, losses = scores.asked.rows, scores.ranking.losses()
        self._grow()
        if self._hosts is None or len(rows) < FEW:
            pairs = zip(rows.tolist(), losses.tolist(), strict=True)
            found = [b'{"Host":%b,"Score":%b' % (self._quoted[row], _POINTS[loss]) for row, loss in pairs]
            return b"[%b]" % b",".join(found)
        whole, written = self._form(scores.asked, self._hosts)
        written[:, -4] = _TENS.take(losses)
        written[:, -3] = _ONES.take(losses)
        return whole.tobytes()

    def _form(self, asked: Asked, hosts: _Bytes) -> tuple[_Bytes, _Bytes]:
        """The answer for these nodes with places for the points; kept for those asked about more than once."""
        made: tuple[_Bytes, _Bytes] | None = asked.memo.get(self)
        if made is not None:
            return made
        whole, written = _blank(len(asked.rows), hosts.shape[1])
        np.take(hosts, asked.rows, axis=0, out=written, mode="clip")
        whole[0], whole[-1] = b"[]"
        if self in asked.memo:
            asked.memo[self] = (whole, written)
        else:
            asked.keep(self, None)
        return whole, written

    def _reasons(self, names: _Bytes, codes: Codes) -> bytes:
        if not len(names):
            return b"{}"
        split = names.shape[1]
        whole, written = _blank(len(names), split + _SENTENCES.shape[1])
        written[:, :split] = names
        written[:, split:] = _SENTENCES.take(codes, axis=0)
        found = whole.tobytes().rstrip(b" ,")
        return b"{" + found[1:] + b"}"

    def _grow(self) -> None:
        """Make the pieces of names new to the roster."""
        if self._recorded == len(self.roster):
            return
        self._quoted.extend(map(_encode, self.roster.names[len(self._quoted) :]))
        self._recorded = len(self._quoted)
        needed, longest = sum(map(len, self._quoted)), max(map(len, self._quoted), default=0)
        uneven = longest * self._recorded > WASTE * needed
        self._names = None if uneven else _records(self._quoted)
        hosts = [b'{"Host":%b,"Score":' % name for name in self._quoted]
        width = max(map(len, hosts), default=0) + 2
        self._hosts = None if uneven else _records([host.ljust(width) + b"}," for host in hosts])


def _blank(rows: int, width: int) -> tuple[_Bytes, _Bytes]:
    """One byte and then ``rows`` records: the whole, and the records in it."""
    whole = np.empty(rows * width + 1, dtype=np.uint8)
    return whole, whole[1:].reshape(rows, width)


def filter_answer(query: NodeQuery, found: Verdicts, pieces: Pieces) -> tuple[bytes, bytes | None]:
    """The answer, and the list of surviving names in it, which kube-scheduler asks about next."""
    if query.items is not None:
        return _with_nodes(query, found, _REST % pieces.failed(found)), None
    untouched = found.keeps is None and query.asked.untouched
    names = query.raw if untouched else _kept(query, found)
    answer = b"".join((b'{"Nodes":null,"NodeNames":', names, _REST % pieces.failed(found)))
    return answer, None if untouched else names


def _kept(query: NodeQuery, found: Verdicts) -> bytes:
    bounds = query.asked.bounds
    if bounds is None or found.keeps is None or not len(found.survivors):
        return _encode(found.passed)
    # What lies between those that are out; each name goes with the separator after it.
    begins = [1, *bounds[found.places + 1].tolist()]
    ends = [*bounds[found.places].tolist(), int(bounds[-1])]
    parts = [query.raw[begin:end] for begin, end in zip(begins, ends, strict=True)]
    return b"[%b]" % b"".join(parts)[:-1]


def _with_nodes(query: NodeQuery, found: Verdicts, rest: bytes) -> bytes:
    items = query.items or ()
    kept = list(items if found.keeps is None else compress(items, found.keeps.tolist()))
    if not kept:
        return b'{"Nodes":{"metadata":{},"items":[]},"NodeNames":null' + rest
    # Joined once: a copy of thousands of nodes takes its time.
    kept[0] = b'{"Nodes":{"metadata":{},"items":[%b%b' % (query.lead, kept[0])
    kept[-1] = b'%b]},"NodeNames":null%b' % (kept[-1], rest)
    return (b"," + query.lead).join(kept)


def filter_error(message: str) -> bytes:
    """An answer that makes kube-scheduler retry the pod by itself; a list of no nodes would park it."""
    return _encode(FilterResult(node_names=(), error=message))


def preemption_answer(kept: Mapping[str, MetaVictims]) -> bytes:
    """Candidates that remain; none forbids every eviction."""
    return _encode(PreemptionResult(dict(kept)))
