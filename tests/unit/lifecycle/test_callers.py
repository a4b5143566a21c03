"""Who may connect to the bus with a ServiceAccount's token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.permissions import Grant, Refusal, permissions
from flexinfer.core.lifecycle.callers import Caller, House, agent_grant, bench_grant, caller_of, is_agent

HOUSE = House("flexinfer-system", "default", "flexinfer-agent")
POD = Caller("default", "default", "bench-1", "uid-1", "n1")
KEY = "smol-0123456789ab"
CLAIM = {
    "metadata": {"name": KEY, "labels": {"app": "flexinfer-benchmark-claims"}},
    "data": {"jobUid": "uid-job"},
}


def review(**changed):
    extra = {"pod-name": ["agent-1"], "pod-uid": ["uid-1"], "node-name": ["n1.example.com"]}
    extra |= changed.pop("extra", {})
    user = {
        "username": "system:serviceaccount:flexinfer-system:flexinfer-agent",
        "extra": {f"authentication.kubernetes.io/{name}": value for name, value in extra.items() if value},
    } | changed.pop("user", {})
    return {"status": {"authenticated": True, "audiences": ["flexinfer-bus"], "user": user} | changed}


def pod(owner: str = "uid-job", **meta):
    owners = [{"kind": "Job", "uid": owner, "controller": True}, {"kind": "Model", "uid": "other"}]
    return {"metadata": {"uid": "uid-1", "ownerReferences": owners} | meta, "spec": {"nodeName": "n2"}}


def test_an_agent_gets_the_subjects_of_the_node_its_token_names() -> None:
    caller = caller_of(review(), HOUSE)
    assert isinstance(caller, Caller)
    assert is_agent(caller, HOUSE)
    grant = agent_grant(caller, None, HOUSE)
    assert isinstance(grant, Grant)
    assert grant.permissions == permissions("agent", "flexinfer-agent n1.example.com", "n1.example.com")
    assert not any(".*." in subject or subject.endswith(".>") for subject in grant.permissions.publish)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"authenticated": False}, "token"),
        ({"audiences": ["https://kubernetes.default.svc"]}, "audience"),
        ({"audiences": None}, "audience"),
        ({"user": {"username": "system:node:n1"}}, "stranger"),
        ({"user": {"username": ""}}, "stranger"),
        ({"extra": {"pod-name": None}}, "unbound"),
        ({"extra": {"pod-uid": None}}, "unbound"),
    ],
)
def test_other_tokens_are_nobodys(changed, reason) -> None:
    refusal = caller_of(review(**changed), HOUSE)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason


def test_agents_of_another_namespace_are_none_of_ours() -> None:
    caller = caller_of(review(user={"username": "system:serviceaccount:default:flexinfer-agent"}), HOUSE)
    assert isinstance(caller, Caller)
    assert not is_agent(caller, HOUSE)


def test_without_the_nodes_name_the_pod_tells_if_it_is_the_same() -> None:
    caller = caller_of(review(extra={"node-name": None}), HOUSE)
    assert isinstance(caller, Caller)
    found = agent_grant(caller, pod(), HOUSE)
    assert isinstance(found, Grant)
    assert found.name == "flexinfer-agent n2"
    for other in (None, pod(uid="uid-of-a-later-pod"), {**pod(), "spec": {}}):
        refusal = agent_grant(caller, other, HOUSE)
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "pod"


def test_a_benchmark_gets_the_key_whose_claim_names_its_job() -> None:
    grant = bench_grant(POD, pod(), CLAIM, HOUSE)
    assert isinstance(grant, Grant)
    assert grant.permissions == permissions("bench", f"flexinfer-bench {KEY}", KEY)


@pytest.mark.parametrize(
    ("found", "claim", "reason"),
    [
        (None, CLAIM, "pod"),
        (pod(uid="another"), CLAIM, "pod"),
        (pod(deletionTimestamp="2026-01-01T00:00:00Z"), CLAIM, "pod"),
        (pod(), None, "stranger"),
        (pod(owner="uid-of-another-job"), CLAIM, "stranger"),
        (pod(ownerReferences=[]), {**CLAIM, "data": {}}, "stranger"),
        (pod(), {**CLAIM, "metadata": {"name": KEY}}, "stranger"),
        (pod(), {**CLAIM, "data": None}, "stranger"),
    ],
)
def test_no_other_pod_is_a_benchmark(found, claim, reason) -> None:
    refusal = bench_grant(POD, found, claim, HOUSE)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason


_JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["authenticated", "audiences", "error"]), _JSON))
def test_whatever_a_review_says_without_a_user_nobody_gets_in(status) -> None:
    assert isinstance(caller_of({"status": status}, HOUSE), Refusal)
