"""Who may connect to the bus with a ServiceAccount's token: agents for their node, benchmarks for their key.

A token is bound to a pod by the API server, which says so when it reviews the token (Kubernetes names the node, too,
since 1.32). What a pod says of itself is never believed: a benchmark counts as one by the claim the manager wrote.
"""

from dataclasses import dataclass

from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.permissions import Grant, Refusal, permissions
from flexinfer.core.lifecycle.claims import read_claim
from flexinfer.core.lifecycle.fold_results import CLAIM_APP_LABEL
from flexinfer.core.lifecycle.objects import controller, deleting, labels, meta, status, uid
from flexinfer.core.lifecycle.view import BENCH_KEY

AUDIENCE = "flexinfer-bus"
# How long a connection lasts at most; then its client shows a token again. Agents: long beside any outage of who
# decides, because an agent that cannot come back is missed by placement; short beside the life of a node.
AGENT_SECONDS = 6 * 3600.0
BENCH_SECONDS = 3600.0

_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_NODE_NAME = "authentication.kubernetes.io/node-name"


@dataclass(frozen=True, slots=True)
class House:
    """What is ours: namespace of the release, its cluster's name on the bus, ServiceAccount of its agents."""

    namespace: str
    cluster: str
    agents: str
    audience: str = AUDIENCE


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose a token is: a ServiceAccount, and the pod it is bound to. ``node`` is empty on Kubernetes before 1.32."""

    namespace: str
    account: str
    pod: str
    pod_uid: str
    node: str

    def __str__(self) -> str:
        return f"ServiceAccount {self.namespace}/{self.account}, pod {self.pod}"


def caller_of(review: Object, house: House) -> Caller | Refusal:
    """From the status of a TokenReview."""
    found = status(review)
    if found.get("authenticated") is not True:
        return Refusal("token", "the API server does not know its token")
    audiences, user = found.get("audiences"), found.get("user")
    if not isinstance(audiences, list) or house.audience not in audiences:
        return Refusal("audience", f"its token is not meant for {house.audience}")
    user = user if isinstance(user, dict) else {}
    parts = str(user.get("username") or "").split(":")
    if len(parts) != 4 or parts[:2] != ["system", "serviceaccount"]:
        return Refusal("stranger", "its token is no ServiceAccount's")
    extra = user.get("extra") or {}
    pod, pod_uid, node = (str((extra.get(name) or [""])[0]) for name in (_POD_NAME, _POD_UID, _NODE_NAME))
    if not (pod and pod_uid):
        return Refusal("unbound", f"the token of ServiceAccount {parts[2]}/{parts[3]} is bound to no pod")
    return Caller(parts[2], parts[3], pod, pod_uid, node)


def is_agent(caller: Caller, house: House) -> bool:
    """Whether its rights are an agent's; all others can only be benchmarks."""
    return (caller.namespace, caller.account) == (house.namespace, house.agents)


def agent_grant(caller: Caller, pod: Object | None, house: House) -> Grant | Refusal:
    """Rights for the node the agent runs on. ``pod`` is asked for only where the token does not name the node."""
    node = caller.node
    if not node and pod is not None and uid(pod) == caller.pod_uid:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
    if not node:
        return Refusal("pod", f"{caller} is on no node")
    client = f"flexinfer-agent {node}"
    return Grant(client, permissions("agent", client, node, house.cluster), AGENT_SECONDS)


def claimed_key(pod: Object | None) -> str:
    """The benchmark a pod says it belongs to: where to look for its claim, and no more than that."""
    return labels(pod).get(BENCH_KEY, "") if pod is not None else ""


def bench_grant(caller: Caller, pod: Object | None, claim: Object | None, house: House) -> Grant | Refusal:
    """Rights for the key of ``claim``, a ConfigMap of our own namespace, if it names the Job that controls the pod."""
    if pod is None or uid(pod) != caller.pod_uid or deleting(pod):
        return Refusal("pod", f"{caller} is gone")
    job = controller(pod)
    if not job or claim is None or labels(claim).get("app") != CLAIM_APP_LABEL or read_claim(claim).job_uid != job:
        return Refusal("stranger", f"{caller} is neither an agent nor a benchmark that is under way")
    key = str(meta(claim)["name"])
    client = f"flexinfer-bench {key}"
    return Grant(client, permissions("bench", client, key, house.cluster), BENCH_SECONDS)
