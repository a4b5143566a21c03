"""Bytes of the extender protocol, both ways: three request dialects in, exactly one out.

Requests come with node names, with whole nodes, or with the lower-case keys of releases before 1.17; Go matches
keys case-insensitively, so any case is read. Answers are PascalCase in the form asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from flexinfer.contracts.extender import (
    Arguments,
    FilterResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    NamedNode,
    NodeItems,
    PodObject,
    PreemptionArguments,
    PreemptionResult,
    RawNodeList,
)

_CANONICAL = {
    name.lower(): name for name in ("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims")
} | {"nodetovictims": "NodeNameToVictims"}
_NOTHING = (b"", b"null")

_arguments = msgspec.json.Decoder(Arguments)
_preemption = msgspec.json.Decoder(PreemptionArguments)
_any_case = msgspec.json.Decoder(dict[str, msgspec.Raw])
_names = msgspec.json.Decoder(tuple[str, ...])
_node_list = msgspec.json.Decoder(RawNodeList)
_named = msgspec.json.Decoder(NamedNode)
_encode = msgspec.json.Encoder().encode

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class BadRequest(ValueError):
    """The request cannot be understood; the text is for the ``Error`` field and so for the pod's events."""


@dataclass(slots=True)
class NodeQuery:
    """A filter or prioritize request. ``items`` holds the nodes as received in full-node form, else None."""

    pod: PodObject
    names: Sequence[str]
    items: tuple[msgspec.Raw, ...] | None = None


def read_query(body: bytes) -> NodeQuery:
    """Raises BadRequest."""
    try:
        found = _arguments.decode(body)
        if found.pod is None or (bytes(found.nodes) in _NOTHING and bytes(found.node_names) in _NOTHING):
            found = _arguments.decode(_recased(body))
        if found.pod is None:
            raise BadRequest("the request has no Pod")
        if bytes(found.node_names) not in _NOTHING:
            return NodeQuery(found.pod, _names.decode(found.node_names))
        if bytes(found.nodes) in _NOTHING:
            raise BadRequest("the request has neither Nodes nor NodeNames")
        items = _node_list.decode(found.nodes).items or ()
        items = tuple(item for item in items if bytes(item) != b"null")
        return NodeQuery(found.pod, [_named.decode(item).metadata.name for item in items], items)
    except DECODE_ERRORS as err:
        raise BadRequest(f"the request is not valid: {err}") from err


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


def filter_answer(
    query: NodeQuery, passed: Sequence[str], failed: Mapping[str, str], final: Mapping[str, str]
) -> bytes:
    """Names that passed; every other name with its sentence, by whether evictions could cure it."""
    if query.items is None:
        return _encode(FilterResult(node_names=tuple(passed), failed=dict(failed), unresolvable=dict(final)))
    kept = set(passed)
    items: dict[str, msgspec.Raw] = {}
    for name, item in zip(query.names, query.items, strict=True):
        if name in kept:
            items.setdefault(name, item)
    return _encode(FilterResult(nodes=NodeItems(tuple(items.values())), failed=dict(failed), unresolvable=dict(final)))


def filter_error(message: str) -> bytes:
    """An answer that makes kube-scheduler retry the pod by itself; a list of no nodes would park it."""
    return _encode(FilterResult(node_names=(), error=message))


def priority_answer(scores: Sequence[tuple[str, int]]) -> bytes:
    """HostPriorityList."""
    return _encode([HostPriority(name, score) for name, score in scores])


def preemption_answer(kept: Mapping[str, MetaVictims]) -> bytes:
    """Candidates that remain; none forbids every eviction."""
    return _encode(PreemptionResult(dict(kept)))
