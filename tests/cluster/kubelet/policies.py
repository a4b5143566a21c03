"""NetworkPolicies as a network plugin would enforce them, asked about connections that were seen."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubelet.wire import Opened

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection. ``labels`` is None for what is no pod: the node, the API server."""

    address: str
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    ports: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.labels is None:
            return self.address
        return f"{self.namespace}/{self.labels.get('app.kubernetes.io/component') or dict(self.labels)}"


@dataclass(frozen=True, slots=True)
class Connection:
    """After a Service was resolved to what stands behind it."""

    source: End
    target: End
    port: int
    protocol: str = "TCP"


def connections(
    seen: Iterable[Opened], pods: Mapping[str, End], services: Sequence[Json], node: str
) -> list[Connection]:
    """What pods opened. The node's own connections are left out: its probes are always let through."""
    return [
        Connection(pods.get(one.source) or End(one.source), target, port, one.protocol)
        for one in sorted(seen)
        if one.source != node and not one.source.startswith("127.") and one.source != one.target
        for target, port in [_resolved(one, pods, services)]
    ]


def _resolved(one: Opened, pods: Mapping[str, End], services: Sequence[Json]) -> tuple[End, int]:
    for service in services:
        if service["spec"].get("clusterIP") != one.target or not service["spec"].get("selector"):
            continue
        wanted = next(port for port in service["spec"]["ports"] if port["port"] == one.port)
        inner = wanted.get("targetPort", one.port)
        for end in pods.values():
            # Pods of another revision may not have the port.
            here = end.namespace == service["metadata"]["namespace"] and (isinstance(inner, int) or inner in end.ports)
            if here and _matches(service["spec"]["selector"], end.labels):
                return end, inner if isinstance(inner, int) else end.ports[inner]
    return pods.get(one.target) or End(one.target), one.port


def refusals(policies: Sequence[Json], asked: Iterable[Connection]) -> list[str]:
    """A sentence for each connection that some policy would not let through."""
    found = []
    for one in asked:
        text = f"{one.source} → {one.target}:{one.port}"
        if not _allowed(policies, "egress", one.source, one.target, one):
            found.append(f"{text} may not leave")
        if not _allowed(policies, "ingress", one.target, one.source, one):
            found.append(f"{text} may not enter")
    return sorted(set(found))


def _allowed(policies: Sequence[Json], way: str, owner: End, other: End, asked: Connection) -> bool:
    if owner.labels is None:
        return True
    kind = way.capitalize()
    mine = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == owner.namespace
        and kind in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], owner.labels)
    ]
    rules = [rule for policy in mine for rule in policy["spec"].get(way) or ()]
    peers = "to" if way == "egress" else "from"
    return not mine or any(_passes(rule, peers, owner, other, asked) for rule in rules)


def _passes(rule: Json, peers: str, owner: End, other: End, asked: Connection) -> bool:
    ports = rule.get("ports")
    wanted = (asked.protocol, asked.port)
    if ports and not any((entry.get("protocol", "TCP"), entry.get("port")) == wanted for entry in ports):
        return False
    return not rule.get(peers) or any(_is(peer, owner, other) for peer in rule[peers])


def _is(peer: Json, owner: End, other: End) -> bool:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        address = ipaddress.ip_address(other.address)
        within = address in ipaddress.ip_network(block["cidr"])
        return within and not any(address in ipaddress.ip_network(gap) for gap in block.get("except") or ())
    if other.labels is None:
        return False
    if "namespaceSelector" in peer:
        # Of a namespace only its name is known here; the chart selects by nothing else.
        here = _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
    else:
        here = other.namespace == owner.namespace
    return here and _selects(peer.get("podSelector") or {}, other.labels)


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    if selector.get("matchExpressions"):
        raise ValueError("matchExpressions are not evaluated here")
    return _matches(selector.get("matchLabels") or {}, labels)


def _matches(wanted: Mapping[str, str], labels: Mapping[str, str] | None) -> bool:
    return labels is not None and all(labels.get(name) == value for name, value in wanted.items())
