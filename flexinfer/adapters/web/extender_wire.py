"""Bytes of the extender protocol, both ways: three request dialects in, exactly one out.

Requests come with node names, with whole nodes, or with the lower-case keys of releases before 1.17; Go matches
keys case-insensitively, so any case is read. Answers are PascalCase in the form asked for.
"""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from flexinfer.contracts.extender import (
    MAX_SCORE,
    Arguments,
    FilterResult,
    MetaPod,
    MetaVictims,
    NamedNode,
    PodObject,
    PreemptionArguments,
    PreemptionResult,
)
from flexinfer.core.placement.boards import Verdicts
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoreboards import Scores

KEPT_LISTS = 4
KEPT_ITEM = 1 << 20  # longer name lists are not kept

_CANONICAL = {
    name.lower(): name for name in ("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims")
} | {"nodetovictims": "NodeNameToVictims"}
_POINTS = tuple(b"%d}," % (MAX_SCORE - loss) for loss in range(MAX_SCORE + 1))

_arguments = msgspec.json.Decoder(Arguments)
_preemption = msgspec.json.Decoder(PreemptionArguments)
_any_case = msgspec.json.Decoder(dict[str, msgspec.Raw])
_names = msgspec.json.Decoder(list[str])
_named = msgspec.json.Decoder(NamedNode)
_encode = msgspec.json.Encoder().encode

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class BadRequest(ValueError):
    """The request cannot be understood; the text is for the ``Error`` field and so for the pod's events."""


@dataclass(slots=True)
class NodeQuery:
    """A filter or prioritize request. ``raw``: the list of names as received; ``items``: in full-node form the nodes
    as received, by name, else None."""

    pod: PodObject
    asked: Asked
    raw: bytes = b""
    items: Mapping[str, msgspec.Raw] | None = None


class Dialogue:
    """Reads filter and prioritize requests and writes filter answers.

    It remembers the last lists of names, because kube-scheduler asks twice about one list, and the replicas of one
    Deployment often about the same nodes.
    """

    def __init__(self) -> None:
        self._lists: deque[tuple[bytes, Asked]] = deque(maxlen=KEPT_LISTS)

    def read(self, body: bytes) -> NodeQuery:
        """Raises BadRequest."""
        try:
            found = _arguments.decode(body)
            if found.pod is None or (found.nodes is None and _absent(found.node_names)):
                found = _arguments.decode(_recased(body))
            if found.pod is None:
                raise BadRequest("the request has no Pod")
            if not _absent(found.node_names):
                raw = bytes(found.node_names)
                return NodeQuery(found.pod, self._asked(raw), raw)
            if found.nodes is None:
                raise BadRequest("the request has neither Nodes nor NodeNames")
            items = {_name_of(item): item for item in found.nodes.items or () if not _absent(item)}
            return NodeQuery(found.pod, Asked(list(items)), items=items)
        except DECODE_ERRORS as err:
            raise BadRequest(f"the request is not valid: {err}") from err

    def _asked(self, raw: bytes) -> Asked:
        # Comparing a handful of lists is cheaper than hashing one: unequal ones differ at once.
        for known, asked in self._lists:
            if known == raw:
                return asked
        asked = Asked(_names.decode(raw))
        self._remember(raw, asked)
        return asked

    def _remember(self, raw: bytes, asked: Asked) -> None:
        if len(raw) <= KEPT_ITEM:
            self._lists.appendleft((raw, asked))

    def filter_answer(self, query: NodeQuery, found: Verdicts) -> bytes:
        """What passed in the form asked for; every other name with its sentence, by whether evictions cure it."""
        if query.items is not None:
            kept = b",".join([query.items[name] for name in found.passed])
            return _filter_result(found, b"null", b'{"metadata":{},"items":[%b]}' % kept)
        if found.encoded is None:
            if found.survivors is query.asked and query.asked.untouched:
                names = query.raw
            else:
                # kube-scheduler asks about the survivors next, in this order and with these bytes.
                names = _encode(found.passed)
                self._remember(names, found.survivors)
            found.encoded = _filter_result(found, names, b"null")
        encoded: bytes = found.encoded
        return encoded


def _absent(raw: msgspec.Raw) -> bool:
    """Missing or null, without copying what is there."""
    return memoryview(raw).nbytes <= 4 and bytes(raw) in {b"", b"null"}


# How Go writes a Node; the name cannot hold an escape, because it is a DNS name.
_GO_NODE = re.compile(rb'\{"metadata":\{"name":"([a-z0-9.-]{1,253})"')


def _name_of(item: msgspec.Raw) -> str:
    found = _GO_NODE.match(memoryview(item))
    return found.group(1).decode() if found else _named.decode(item).metadata.name


def _recased(body: bytes) -> bytes:
    found = _any_case.decode(body)
    return _encode({_CANONICAL.get(key.lower(), key): value for key, value in found.items()})


def read_preemption(body: bytes) -> tuple[PodObject, dict[str, MetaVictims]]:
    """The preemptor and the victims of each candidate node by uid. Raises BadRequest."""
    try:
        found = _preemption.decode(body)
        if found.pod is None or (found.victims is None and found.meta_victims is None):
            found = _preemption.decode(_recased(body))
    except DECODE_ERRORS as err:
        raise BadRequest(f"the request is not valid: {err}") from err
    if found.pod is None:
        raise BadRequest("the request has no Pod")
    if found.meta_victims is not None:
        return found.pod, {name: _tidy(victims) for name, victims in found.meta_victims.items()}
    whole = {
        name: MetaVictims(
            tuple(MetaPod(pod.metadata.uid) for pod in (victims.pods or ()) if pod) if victims else (),
            victims.violations if victims else 0,
        )
        for name, victims in (found.victims or {}).items()
    }
    return found.pod, whole


def _tidy(victims: MetaVictims | None) -> MetaVictims:
    if victims is None:
        return MetaVictims(())
    return MetaVictims(tuple(pod for pod in victims.pods or () if pod), victims.violations)


def uids(victims: MetaVictims) -> frozenset[str]:
    """Who would be evicted."""
    return frozenset(pod.uid for pod in victims.pods or () if pod)


def _filter_result(found: Verdicts, names: bytes, nodes: bytes) -> bytes:
    failed: dict[str, str] = {}
    final: dict[str, str] = {}
    for name, reason in found.failed.items():
        (final if reason.final else failed)[name] = reason.text
    return b'{"Nodes":%b,"NodeNames":%b,"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":""}' % (
        nodes,
        names,
        _encode(failed),
        _encode(final),
    )


def filter_error(message: str) -> bytes:
    """An answer that makes kube-scheduler retry the pod by itself; a list of no nodes would park it."""
    return _encode(FilterResult(node_names=(), error=message))


def priority_answer(scores: Scores) -> bytes:
    """HostPriorityList, scores as integers. Pieces are kept and only those of changed nodes are made again."""
    ranking = scores.ranking
    if not ranking.names:
        return b"[]"
    pieces: list[bytes] | None = scores.encoded
    if pieces is None:
        pieces = [b""] * (2 * len(ranking.names))
        if scores.asked.roster is not None:
            pieces[0::2] = scores.asked.pick(scores.asked.roster.column("hosts", _host))
        scores.encoded = pieces
        scores.changed = None
    if scores.changed is None:
        pieces[1::2] = ranking.translated(_POINTS)
    else:
        for position in scores.changed:
            pieces[2 * position + 1] = _POINTS[ranking.lost(position)]
    scores.changed = []
    return b"[" + b"".join(pieces)[:-1] + b"]"


def _host(name: str) -> bytes:
    return b'{"Host":%b,"Score":' % _encode(name)


def preemption_answer(kept: Mapping[str, MetaVictims]) -> bytes:
    """Candidates that remain; none forbids every eviction."""
    return _encode(PreemptionResult(dict(kept)))
