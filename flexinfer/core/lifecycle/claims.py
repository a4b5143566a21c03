"""The claim of a benchmark: a ConfigMap named by the key, so that only one of many models measures it.

Everything a later manager must know about a measurement under way is in here: who holds it, which Job, how often it
failed, when to try again. Each change carries the resourceVersion it was decided on.
"""

from dataclasses import dataclass

from flexinfer.contracts.kubernetes import CONFIGMAPS, Object
from flexinfer.core.effects import Create, Delete, Patch
from flexinfer.core.lifecycle.description import Description, ModelKey
from flexinfer.core.lifecycle.fold_results import CLAIM_APP_LABEL
from flexinfer.core.lifecycle.job import Run
from flexinfer.core.lifecycle.naming import MANAGED_BY, job_name
from flexinfer.core.lifecycle.objects import meta, parse_time, uid, write_time
from flexinfer.core.lifecycle.policy import Policy

RETRY_SECONDS = 60.0
RETRY_CEILING = 3600.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as read. Times in Unix seconds, 0 if there was none; ``failed_uid``: the Job whose failure is counted."""

    object: Object
    holder: ModelKey
    holder_uid: str
    job_uid: str
    attempts: int
    failed_uid: str
    retry_at: float
    reason: str
    message: str


def read_claim(obj: Object) -> Claim:
    """The claim in a ConfigMap; what people broke in it reads as absent."""
    data = obj.get("data") or {}
    kind, _, rest = str(data.get("holder", "")).partition("/")
    namespace, _, name = rest.partition("/")
    attempts = str(data.get("attempts", "0"))
    return Claim(
        obj,
        ModelKey(kind, namespace, name),
        str(data.get("holderUid", "")),
        str(data.get("jobUid", "")),
        int(attempts) if attempts.isdigit() else 0,
        str(data.get("failedUid", "")),
        parse_time(data.get("retryAt")) or 0.0,
        str(data.get("reason", "")),
        str(data.get("message", "")),
    )


def new_claim(wanted: Description, run: Run, policy: Policy) -> Create:
    """Made first: whoever creates it measures."""
    return Create(
        CONFIGMAPS,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": run.key,
                "namespace": policy.namespace,
                "labels": {
                    "app": CLAIM_APP_LABEL,
                    "app.kubernetes.io/managed-by": MANAGED_BY,
                    "app.kubernetes.io/part-of": "flexinfer",
                },
            },
            "data": _holder(wanted, run)
            | {"workload": wanted.workload, "deviceClass": run.option.device_class, "attempts": "0"},
        },
    )


def take_over(claim: Claim, wanted: Description, run: Run, policy: Policy) -> Patch:
    """The holder is gone: continue under our name."""
    return _change(claim, _holder(wanted, run) | {"jobUid": "", "failedUid": ""}, policy)


def name_job(claim: Claim, job: Object, policy: Policy) -> Patch:
    """Which Job measures now."""
    return _change(claim, {"jobUid": uid(job)}, policy)


def count_failure(claim: Claim, failed_uid: str, why: tuple[str, str], now: float, policy: Policy) -> Patch:
    """One more attempt without a result; the next is due later each time: 1, 4, 16 minutes, then hourly."""
    attempts = claim.attempts + 1
    wait = min(RETRY_SECONDS * 4 ** (attempts - 1), RETRY_CEILING)
    return _change(
        claim,
        {
            "attempts": str(attempts),
            "failedUid": failed_uid,
            "failedAt": write_time(now),
            "retryAt": write_time(now + wait),
            "reason": why[0],
            "message": why[1][:500],
        },
        policy,
    )


def give_back(obj: Object, policy: Policy) -> Delete:
    """The result is recorded, or nobody wants it any more."""
    return Delete(CONFIGMAPS, policy.namespace, str(meta(obj)["name"]), uid(obj))


def _holder(wanted: Description, run: Run) -> dict[str, str]:
    return {
        "holder": "/".join(wanted.key),
        "holderUid": wanted.uid,
        "job": f"{wanted.key.namespace}/{job_name(run.key)}",
        "image": run.image,
    }


def _change(claim: Claim, data: dict[str, str], policy: Policy) -> Patch:
    found = meta(claim.object)
    body = {"metadata": {"resourceVersion": found.get("resourceVersion")}, "data": data}
    return Patch(CONFIGMAPS, policy.namespace, str(found["name"]), body)
