"""Job: pods until enough of them succeeded, or too many failed, or the time is up."""

from collections.abc import Iterable
from dataclasses import dataclass

from flexinfer.local.kubeapi.controllers import podstate
from flexinfer.local.kubeapi.controllers.recording import Recorder
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.objects import Json, at, clone, meta, owner_of, seconds, set_condition, timestamp
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key, Stored

_LONGEST_PAUSE = 600.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Pods of a job by state. ``restarts`` counts container restarts of pods that restart in place."""

    active: tuple[Stored, ...]
    terminating: int
    ready: int
    succeeded: int
    failed: int
    restarts: int
    last_failure: float


class JobController:
    """Creates pods, counts them, finishes the job. Sidecars do not matter here: the pod's phase decides."""

    name = "job"

    def __init__(self, registry: Registry, backoff: float) -> None:
        self._registry = registry
        self._backoff = backoff
        self._kind = podstate.need(registry, "batch/v1", "Job")
        self._pods = podstate.need(registry, "v1", "Pod")
        self._events = Recorder(registry, "job-controller")
        # Pods that are gone still count. The real controller holds them back with a finalizer; here every removal
        # passes through concerns(), so remembering is enough.
        self._gone: dict[str, dict[str, str]] = {}

    def concerns(self, change: Change) -> Iterable[Key]:
        """The job itself, or the one a pod belongs to."""
        if change.bucket == self._kind.bucket:
            if change.type == "DELETED":
                self._gone.pop(meta(change.after.obj)["uid"], None)
            return [podstate.key_of(change.after.obj)]
        if change.bucket != "pods":
            return []
        owner = owner_of(change.after.obj)
        if change.type == "DELETED" and owner is not None and owner["kind"] == "Job":
            outcome = "Succeeded" if podstate.phase(change.after.obj) == "Succeeded" else "Failed"
            self._gone.setdefault(owner["uid"], {})[meta(change.after.obj)["uid"]] = outcome
        return podstate.owner_keys(change, "Job")

    def reconcile(self, key: Key) -> float | None:
        """One pass; comes back for the deadline, the backoff or the time to live."""
        stored = self._registry.store.get(self._kind.bucket, key)
        if stored is None or meta(stored.obj).get("deletionTimestamp"):
            return None
        job, now = stored.obj, self._registry.clock.now()
        if podstate.condition(job, "Complete") or podstate.condition(job, "Failed"):
            return self._expire(job, now)
        tally = self._count(job)
        if at(job, "spec", "suspend"):
            self._stop(job, tally)
            self._write(stored, tally, now, _suspended("True", "JobSuspended", "Job suspended"))
            return None
        failure = self._failure(job, tally, now)
        if failure is not None:
            self._stop(job, tally)
            return self._finish(stored, now, failure)
        if self._complete(job, tally):
            self._stop(job, tally)
            return self._finish(stored, now, None)
        return self._continue(stored, tally, now)

    def _count(self, job: Json) -> Tally:
        uid = meta(job)["uid"]
        pods = self._registry.store.list("pods", meta(job)["namespace"])
        owned = [pod for pod in pods if (owner_of(pod.obj) or {}).get("uid") == uid]
        gone = self._gone.get(uid, {}).values()
        failed = [pod for pod in owned if podstate.phase(pod.obj) == "Failed"]
        active = tuple(pod for pod in owned if podstate.alive(pod.obj))
        terminating = sum(bool(meta(p.obj).get("deletionTimestamp")) and not podstate.finished(p.obj) for p in owned)
        return Tally(
            active=active,
            terminating=terminating,
            ready=sum(podstate.ready(pod.obj) for pod in active),
            succeeded=sum(podstate.phase(p.obj) == "Succeeded" for p in owned) + sum(o == "Succeeded" for o in gone),
            failed=len(failed) + sum(outcome == "Failed" for outcome in gone),
            restarts=_restarts(job, active),
            last_failure=max((_end(pod.obj) for pod in failed), default=0.0),
        )

    def _failure(self, job: Json, tally: Tally, now: float) -> tuple[str, str] | None:
        already = podstate.condition(job, "FailureTarget")
        if already is not None:
            return already["reason"], already["message"]
        limit = at(job, "spec", "backoffLimit")
        if tally.failed + tally.restarts > (6 if limit is None else limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline, began = at(job, "spec", "activeDeadlineSeconds"), seconds(at(job, "status", "startTime"))
        if deadline is not None and began is not None and now - began >= deadline:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    @staticmethod
    def _complete(job: Json, tally: Tally) -> bool:
        completions = at(job, "spec", "completions")
        if completions is None:
            return tally.succeeded > 0 and not tally.active
        return tally.succeeded >= int(completions)

    def _stop(self, job: Json, tally: Tally) -> None:
        for pod in tally.active:
            namespace, name = podstate.key_of(pod.obj)
            self._registry.delete(self._pods, namespace, name, DeleteOptions())
            self._events.say(job, "SuccessfulDelete", f"Deleted pod: {name}")

    def _continue(self, stored: Stored, tally: Tally, now: float) -> float | None:
        job = stored.obj
        parallelism = int(at(job, "spec", "parallelism") or 0)
        completions = at(job, "spec", "completions")
        if completions is None:
            wanted = parallelism if tally.succeeded == 0 else len(tally.active)
        else:
            wanted = min(parallelism, int(completions) - tally.succeeded)
        pause = self._pause(tally, now)
        if len(tally.active) > wanted:
            for pod in sorted(tally.active, key=podstate.deletion_rank)[: len(tally.active) - wanted]:
                self._registry.delete(self._pods, *podstate.key_of(pod.obj), DeleteOptions())
        elif pause == 0:
            body = podstate.pod_from(clone(at(job, "spec", "template")), job)
            for _ in range(wanted - len(tally.active)):
                made = self._registry.create(self._pods, meta(job)["namespace"], body)
                self._events.say(job, "SuccessfulCreate", f"Created pod: {meta(made.obj)['name']}")
        resumed = _suspended("False", "JobResumed", "Job resumed") if podstate.condition(job, "Suspended") else None
        self._write(stored, self._count(job), now, resumed)
        began = seconds(at(job, "status", "startTime")) or now
        deadline = at(job, "spec", "activeDeadlineSeconds")
        waits = [pause] if pause else []
        if deadline is not None:
            waits.append(max(began + deadline - now, 0.05))
        return min(waits, default=None)

    def _pause(self, tally: Tally, now: float) -> float:
        """Seconds before the next pod may be made: doubles with each failure."""
        if tally.failed == 0:
            return 0.0
        pause = min(self._backoff * 2.0 ** min(tally.failed - 1, 16), _LONGEST_PAUSE)
        return max(0.0, tally.last_failure + pause - now)

    def _finish(self, stored: Stored, now: float, failure: tuple[str, str] | None) -> float | None:
        """Announce the end; declare it once no pod runs any more, as consumers of the condition rely on that."""
        interim, final = ("FailureTarget", "Failed") if failure else ("SuccessCriteriaMet", "Complete")
        reason, message = failure or ("CompletionsReached", "Reached expected number of succeeded pods")
        after = self._count(stored.obj)
        conditions = [_condition(interim, reason, message)]
        if not after.active and not after.terminating:
            conditions.append(_condition(final, reason, message))
            if failure:
                self._events.say(stored.obj, reason, message, "Warning")
            else:
                self._events.say(stored.obj, "Completed", "Job completed")
        self._write(stored, after, now, *conditions)
        return self._expire(self._registry.get(self._kind, *podstate.key_of(stored.obj)).obj, now)

    def _write(self, stored: Stored, tally: Tally, now: float, *conditions: Json | None) -> None:
        def change(obj: Json) -> None:
            status = obj.setdefault("status", {})
            if not at(obj, "spec", "suspend"):
                status.setdefault("startTime", timestamp(now))
            counted = {
                "active": len(tally.active), "terminating": tally.terminating, "ready": tally.ready,
                "succeeded": tally.succeeded, "failed": tally.failed,
            }  # fmt: skip
            for name, value in counted.items():
                if value or name in ("terminating", "ready"):
                    status[name] = value
                else:
                    status.pop(name, None)
            status["uncountedTerminatedPods"] = {}
            current = status.get("conditions") or []
            for condition in filter(None, conditions):
                current = set_condition(current, condition, now)
                if condition["type"] == "Complete":
                    status.setdefault("completionTime", timestamp(now))
            if current:
                status["conditions"] = current

        self._registry.edit(self._kind, stored, change)

    def _expire(self, job: Json, now: float) -> float | None:
        life = at(job, "spec", "ttlSecondsAfterFinished")
        ended = podstate.condition(job, "Complete") or podstate.condition(job, "Failed")
        if life is None or ended is None:
            return None
        left = (seconds(ended.get("lastTransitionTime")) or now) + life - now
        if left > 0:
            return float(left)
        namespace, name = podstate.key_of(job)
        self._registry.delete(self._kind, namespace, name, DeleteOptions(propagation="Foreground"))
        return None


def _condition(kind: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def _suspended(status: str, reason: str, message: str) -> Json:
    return {"type": "Suspended", "status": status, "reason": reason, "message": message}


def _restarts(job: Json, active: Iterable[Stored]) -> int:
    if at(job, "spec", "template", "spec", "restartPolicy") != "OnFailure":
        return 0
    return sum(
        int(container.get("restartCount") or 0)
        for pod in active
        for container in at(pod.obj, "status", "containerStatuses") or ()
    )


def _end(pod: Json) -> float:
    """When a failed pod ended, in Unix seconds."""
    ends = [
        seconds(at(container, "state", "terminated", "finishedAt"))
        for container in at(pod, "status", "containerStatuses") or ()
    ]
    known = [end for end in ends if end is not None]
    return max(known) if known else seconds(meta(pod).get("creationTimestamp")) or 0.0
