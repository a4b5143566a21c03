"""What a DELETE does to one object: gone at once, marked and waiting, or nothing new."""

from dataclasses import dataclass
from typing import Any

from flexinfer.local.kubeapi import errors
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, at, clone, meta, timestamp

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_PERMANENT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """``meta/v1 DeleteOptions``; ``grace`` in seconds, None: as the object says."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    @staticmethod
    def parse(body: Json, query: dict[str, str]) -> "DeleteOptions":
        """From the body, with query parameters where it is silent. Raises ApiError 400."""
        grace: Any = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        propagation = str(body.get("propagationPolicy") or query.get("propagationPolicy") or "")
        if propagation not in ("", "Background", "Foreground", "Orphan"):
            raise errors.bad_request(f"invalid propagationPolicy {propagation!r}")
        if not propagation and body.get("orphanDependents") is not None:
            propagation = "Orphan" if body["orphanDependents"] else "Background"
        try:
            seconds = None if grace is None else int(grace)
        except (TypeError, ValueError) as err:
            raise errors.bad_request(f"invalid gracePeriodSeconds {grace!r}") from err
        conditions = body.get("preconditions") or {}
        dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
        return DeleteOptions(
            grace=seconds,
            propagation=propagation,
            uid=str(conditions.get("uid") or ""),
            resource_version=str(conditions.get("resourceVersion") or ""),
            dry_run="All" in dry,
        )


@dataclass(frozen=True, slots=True)
class Marking:
    """Outcome: ``gone``, or the object to store, or neither when nothing changes."""

    gone: bool
    obj: Json | None = None


def mark(kind: Kind, current: Json, options: DeleteOptions, now: float) -> Marking:
    """Decide. Raises ApiError 403 for a permanent namespace, 409 for a failed precondition."""
    _check(kind, current, options)
    grace = _grace(kind, current, options)
    metadata = meta(current)
    finalizers = _finalizers(metadata, options)
    waiting = bool(finalizers or (kind.bucket == "namespaces" and at(current, "spec", "finalizers")))
    if not waiting and grace == 0:
        return Marking(gone=True)
    already = metadata.get("deletionTimestamp")
    if already and finalizers == list(metadata.get("finalizers") or ()):
        left = int(metadata.get("deletionGracePeriodSeconds") or 0)
        if grace >= left:
            return Marking(gone=False)
    obj = clone(current)
    changed = obj["metadata"]
    changed["deletionTimestamp"] = timestamp(now + grace)
    changed["deletionGracePeriodSeconds"] = grace
    if finalizers:
        changed["finalizers"] = finalizers
    else:
        changed.pop("finalizers", None)
    if not already and "generation" in changed:
        changed["generation"] += 1
    if kind.bucket == "namespaces":
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return Marking(gone=False, obj=obj)


def _check(kind: Kind, current: Json, options: DeleteOptions) -> None:
    metadata = meta(current)
    if kind.bucket == "namespaces" and metadata["name"] in _PERMANENT_NAMESPACES:
        raise errors.forbidden(kind, metadata["name"], "this namespace may not be deleted")
    if options.uid and options.uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}"
        raise errors.conflict(kind, metadata["name"], why)
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {options.resource_version},"
            f" ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
        raise errors.conflict(kind, metadata["name"], why)


def _grace(kind: Kind, current: Json, options: DeleteOptions) -> int:
    """Seconds to wait for a runner: only pods on a node that still run have one."""
    if kind.bucket != "pods" or not at(current, "spec", "nodeName"):
        return 0
    if at(current, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace is not None:
        return max(options.grace, 0)
    wanted = at(current, "spec", "terminationGracePeriodSeconds")
    return 30 if wanted is None else int(wanted)


def _finalizers(metadata: Json, options: DeleteOptions) -> list[str]:
    found = list(metadata.get("finalizers") or ())
    if options.propagation in ("Background", "Foreground", "Orphan"):
        found = [name for name in found if name not in (ORPHAN, FOREGROUND)]
    if options.propagation == "Foreground":
        found.append(FOREGROUND)
    elif options.propagation == "Orphan":
        found.append(ORPHAN)
    return found
