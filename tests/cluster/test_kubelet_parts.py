"""Parts of the rig's kubelet that decide what the proof says: they need no cluster."""

import struct
from typing import Any

import pytest
from kubelet import dns
from kubelet.policies import Connection, End, connections, refusals
from kubelet.rights import Right, granted, used
from kubelet.wire import Opened

WEB = End("10.244.0.3", "shop", {"app": "web"}, {"http": 8080})
CLIENT = End("10.244.0.4", "shop", {"app": "client"})
STRANGER = End("10.244.0.5", "street", {"app": "client"})
POLICY = {
    "metadata": {"namespace": "shop", "name": "web"},
    "spec": {
        "podSelector": {"matchLabels": {"app": "web"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": 8080}], "from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}],
        "egress": [{"ports": [{"protocol": "UDP", "port": 53}]}],
    },
}


@pytest.mark.parametrize(
    ("source", "target", "port", "said"),
    [
        (CLIENT, WEB, 8080, []),
        (CLIENT, WEB, 9000, ["may not enter"]),
        (STRANGER, WEB, 8080, ["may not enter"]),
        (WEB, CLIENT, 80, ["may not leave"]),
        (WEB, CLIENT, 53, ["may not leave"]),  # that rule is about UDP
        (CLIENT, STRANGER, 80, []),  # no policy selects them
    ],
)
def test_a_policy_refuses_what_no_rule_of_it_lets_through(source: End, target: End, port: int, said: list[str]) -> None:
    found = refusals([POLICY], [Connection(source, target, port)])
    assert [text[-13:].strip() for text in found] == said


def test_a_rule_about_udp_lets_a_question_to_the_dns_through() -> None:
    assert refusals([POLICY], [Connection(WEB, STRANGER, 53, "UDP")]) == []


def test_a_connection_to_a_service_is_one_to_the_pod_behind_it() -> None:
    service = {
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"clusterIP": "10.96.0.7", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]},
    }
    pods = {end.address: end for end in (WEB, CLIENT)}
    node = Opened("10.244.0.1", WEB.address, 8080)
    found = connections({Opened(CLIENT.address, "10.96.0.7", 80), node}, pods, [service], "10.244.0.1")
    assert found == [Connection(CLIENT, WEB, 8080)]


class Table:
    """One Service and one host of a headless one."""

    def resolve(self, namespace: str, service: str, host: str | None = None) -> list[str] | None:
        known = {("shop", "web", None): ["10.96.0.7"], ("shop", "webs", "web-0"): ["10.244.0.3"]}
        return known.get((namespace, service, host))


def _query(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


@pytest.mark.parametrize(
    ("name", "kind", "code", "addresses"),
    [
        ("web.shop.svc.cluster.local", dns.A, dns.NO_ERROR, ["10.96.0.7"]),
        ("WEB.Shop.svc.cluster.local", dns.A, dns.NO_ERROR, ["10.96.0.7"]),
        ("web.shop.svc.cluster.local", dns.AAAA, dns.NO_ERROR, []),
        ("web-0.webs.shop.svc.cluster.local", dns.A, dns.NO_ERROR, ["10.244.0.3"]),
        ("other.shop.svc.cluster.local", dns.A, dns.NO_SUCH_NAME, []),
        ("example.com", dns.A, dns.NO_SUCH_NAME, []),
    ],
)
def test_names_of_services_are_answered(name: str, kind: int, code: int, addresses: list[str]) -> None:
    reply = dns.answer(_query(name, kind), Table())  # type: ignore[arg-type]
    number, flags, _questions, count = struct.unpack_from("!HHHH", reply)
    assert (number, flags & 0xF, count) == (7, code, len(addresses))
    assert [".".join(map(str, reply[at : at + 4])) for at in range(len(reply) - 4, len(reply), 4)][:count] == addresses


@pytest.mark.parametrize("noise", [b"", b"\0" * 12, _query("a.b", 1)[:18], bytes([0, 1, 0x80]) + b"\0" * 30])
def test_noise_is_not_answered(noise: bytes) -> None:
    with pytest.raises(ValueError, match=r"question|query"):
        dns.answer(noise, Table())  # type: ignore[arg-type]


def _entry(user: str, verb: str, resource: str, code: int = 200, decision: str = "allow") -> dict[str, Any]:
    return {
        "user": {"username": user}, "verb": verb, "objectRef": {"resource": resource}, "userAgent": "us/1",
        "responseStatus": {"code": code}, "annotations": {"authorization.k8s.io/decision": decision},
        "requestURI": "/x",
    }  # fmt: skip


def test_an_apply_that_made_an_object_used_the_right_to_create() -> None:
    who = "system:serviceaccount:shop:web"
    log = [
        _entry(who, "patch", "services", 201),
        _entry(who, "get", "secrets", 403, "forbid"),
        _entry("me", "get", "x"),
    ]
    rights, refused = used(log, "shop")
    assert set(rights) == {Right("web", "", "services", "patch"), Right("web", "", "services", "create")}
    assert refused == ["web: get /secrets (/x)"]


def test_roles_are_read_through_their_bindings() -> None:
    manifest = """
kind: Role
metadata: {name: r, namespace: shop}
rules: [{apiGroups: [""], resources: [pods, pods/log], verbs: [get]}]
---
kind: RoleBinding
metadata: {name: b, namespace: shop}
roleRef: {kind: Role, name: r}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]
---
kind: ClusterRole
metadata: {name: unbound}
rules: [{apiGroups: [""], resources: [secrets], verbs: [list]}]
"""
    assert set(granted(manifest, "shop")) == {Right("web", "", "pods", "get"), Right("web", "", "pods/log", "get")}
