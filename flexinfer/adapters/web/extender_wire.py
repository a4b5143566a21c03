"""Requests of the extender protocol: with node names, with whole nodes, or with the lower-case keys of releases before
1.17. Go matches keys case-insensitively, so any case is read.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flexinfer.contracts.extender import (
    Arguments,
    MetaPod,
    MetaVictims,
    NamedNode,
    PodObject,
    PreemptionArguments,
)
from flexinfer.core.placement.roster import Asked, Roster

KEPT_LISTS = 16
KEPT_ITEM = 1 << 20  # longer name lists are not kept

_CANONICAL = {
    name.lower(): name for name in ("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims")
} | {"nodetovictims": "NodeNameToVictims"}
_NAMES = b',"NodeNames":'
# How Go writes a list of whole nodes. Nothing else in a Node looks like its beginning: no other part of it has
# metadata, and quotes in texts are escaped.
_ITEMS = b'"items":['
_ITEM = b'{"metadata":{"name":"'
_END = b']},"NodeNames":null}'
LARGE = 1 << 18  # bytes of a body from which on nodes are told apart by these marks instead of being parsed

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
    as received, in the order of ``asked``, else None. ``lead``: bytes that each of them lacks at its beginning."""

    pod: PodObject
    asked: Asked
    raw: bytes = b""
    items: Sequence[bytes | msgspec.Raw] | None = None
    lead: bytes = b""


class Dialogue:
    """Reads filter and prioritize requests.

    It remembers the last lists of names, because kube-scheduler asks twice about one list, and the replicas of one
    Deployment often about the same nodes.
    """

    def __init__(self) -> None:
        self._lists: deque[tuple[bytes, Asked]] = deque(maxlen=KEPT_LISTS)

    def read(self, body: bytes, roster: Roster) -> NodeQuery:
        """Raises BadRequest."""
        try:
            found = self._read_names(body, roster) or self._read_nodes(body, roster)
            return found or self._read_any(body, roster)
        except DECODE_ERRORS as err:
            raise BadRequest(f"the request is not valid: {err}") from err

    def _read_names(self, body: bytes, roster: Roster) -> NodeQuery | None:
        """A request as Go writes it in names form: the names are the last field and can be cut off unread."""
        cut = body.find(_NAMES) if body.endswith(b"]}") else -1
        if cut < 0:
            return None
        try:
            # Valid with its end put back, so the names stand at the top level.
            found = _arguments.decode(body[:cut] + b"}")
            raw = body[cut + len(_NAMES) : -1]
            return None if found.pod is None else NodeQuery(found.pod, self._asked(raw, roster), raw)
        except DECODE_ERRORS:
            return None

    def _read_nodes(self, body: bytes, roster: Roster) -> NodeQuery | None:
        """A large request as Go writes it with whole nodes, cut where each begins. What is in a node is not looked
        at; it goes back as it came."""
        first = body.find(_ITEMS + _ITEM) if len(body) >= LARGE and body.endswith(_END) else -1
        if first < 0:
            return None
        first += len(_ITEMS)
        try:
            # Valid without its nodes, so they are the list's own.
            head = _arguments.decode(body[:first] + _END)
        except DECODE_ERRORS:
            return None
        if head.pod is None or head.nodes is None or head.nodes.items != []:
            return None
        items = body.split(b"," + _ITEM)
        if len(items[0]) < first:
            return None
        items[-1] = items[-1][: -len(_END)]
        items[0] = items[0][first + len(_ITEM) :]
        raw = b'["%b"]' % b'","'.join([item[: item.find(b'"')] for item in items])
        if b"\\" in raw:
            return None  # no node has such a name; the parser may say what it is
        listing = roster.read(raw)
        asked = Asked(_names.decode(raw)) if listing is None else Asked.of(roster, listing.rows)
        asked.enrol(roster)
        return NodeQuery(head.pod, asked, items=items, lead=_ITEM) if asked.untouched else None

    def _read_any(self, body: bytes, roster: Roster) -> NodeQuery:
        found = _arguments.decode(body)
        if found.pod is None or (found.nodes is None and _absent(found.node_names)):
            found = _arguments.decode(_recased(body))
        if found.pod is None:
            raise BadRequest("the request has no Pod")
        if not _absent(found.node_names):
            raw = bytes(found.node_names)
            return NodeQuery(found.pod, self._asked(raw, roster), raw)
        if found.nodes is None:
            raise BadRequest("the request has neither Nodes nor NodeNames")
        items = {_name_of(item): item for item in found.nodes.items or () if not _absent(item)}
        return NodeQuery(found.pod, Asked(list(items)), items=list(items.values()))

    def _asked(self, raw: bytes, roster: Roster) -> Asked:
        # Comparing a handful of lists is cheaper than hashing one: unequal ones differ at once.
        for known, asked in self._lists:
            if known == raw:
                return asked
        listing = roster.read(raw)
        asked = Asked(_names.decode(raw)) if listing is None else Asked.of(roster, listing.rows, listing.bounds)
        self.remember(raw, asked)
        return asked

    def remember(self, raw: bytes, asked: Asked) -> None:
        """A list that will be asked about."""
        if len(raw) <= KEPT_ITEM:
            self._lists.appendleft((raw, asked))


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
