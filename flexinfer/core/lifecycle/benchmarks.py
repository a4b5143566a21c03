"""What to measure next for one model, and whether it may be deployed meanwhile.

Each device class goes its own way: claim → Job → result, or failure and a later try. Every step is decided from what
exists, so a manager killed between two steps changes nothing.
"""

from dataclasses import dataclass, field, replace

from flexinfer.contracts.events import BenchCompleted, ModelEndpoint
from flexinfer.contracts.kubernetes import JOBS, Object
from flexinfer.contracts.labels import GPU_RESOURCES
from flexinfer.core.effects import Create, Delete, Effect, Note, Publish
from flexinfer.core.fleet.identity import result_key
from flexinfer.core.lifecycle import claims
from flexinfer.core.lifecycle.bench_pods import bench_pods, engine_ready, instances_of, running_replica, unplaced
from flexinfer.core.lifecycle.claims import Claim, read_claim
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.fit import Option
from flexinfer.core.lifecycle.fold_results import outdated_since
from flexinfer.core.lifecycle.job import Run, bench_job, measured_image
from flexinfer.core.lifecycle.mounting import unmounted
from flexinfer.core.lifecycle.naming import job_name
from flexinfer.core.lifecycle.objects import (
    annotations,
    condition,
    controller,
    deleting,
    holds,
    meta,
    name_of,
    parse_time,
    status,
    uid,
)
from flexinfer.core.lifecycle.pods import image_of
from flexinfer.core.lifecycle.scale import in_use
from flexinfer.core.lifecycle.view import WORKLOAD, LifecycleView, ModelState

RESULT_GRACE = 15.0  # a Job can be complete before its result has reached us
IDLE_SECONDS = 10.0  # a replica nobody used for this long may be measured itself
VENDORS = ("CPU", *GPU_RESOURCES)
MOUNT_SECONDS = 30.0  # a volume may be on its way; a folder that is not there comes no sooner by waiting
BUSY_SECONDS = 30.0  # how long a run of a model that is deployed already may wait for a device


@dataclass(slots=True)
class Benchmarks:
    """Where the measurements of one model stand. ``open`` maps a class that has no answer yet to what it waits for."""

    results: dict[str, BenchCompleted] = field(default_factory=dict)  # by device class
    open: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    wake_at: list[float] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Every class has a result or failed."""
        return not self.open


@dataclass(frozen=True, slots=True)
class _Case:
    """One class of one model, with everything its next step depends on."""

    view: LifecycleView
    state: ModelState
    wanted: Description
    run: Run
    now: float
    deployed: bool  # the model serves, or starts to, already

    @property
    def job(self) -> Object | None:
        return self.view.jobs.get((self.wanted.key.namespace, job_name(self.run.key)))

    @property
    def ours(self) -> list[Object]:
        return bench_pods(self.view, self.wanted, self.run)


def runs_of(view: LifecycleView, wanted: Description, options: tuple[Option, ...]) -> tuple[Run, ...]:
    """The measurements that make the picture of this model complete; a class without an image cannot be measured."""
    found = []
    for option in options:
        image = image_of(wanted, option.vendor, view.policy)
        if image:
            key = result_key(wanted.workload, image, option.driver_major, option.device_class)
            found.append(Run(key, option, image))
    return tuple(found)


def images_of(view: LifecycleView, wanted: Description) -> set[str]:
    """Images this version of the model may run with, one for each vendor."""
    return {image for vendor in VENDORS if (image := image_of(wanted, vendor, view.policy))}


def known_results(view: LifecycleView, wanted: Description) -> dict[str, BenchCompleted]:
    """Results of this very workload and image by device class, whether or not a node of the class is there now."""
    images = images_of(view, wanted) | {""}
    found: dict[str, BenchCompleted] = {}
    for key in sorted(view.results_of.get(wanted.workload, ()), key=lambda k: view.measured_at.get(k, 0.0)):
        result = view.fleet.results[key]
        if result.image in images:
            found[result.device_class] = result
    return found


def plan_benchmarks(
    view: LifecycleView, state: ModelState, wanted: Description, runs: tuple[Run, ...], now: float, *, deployed: bool
) -> Benchmarks:
    """The state of all measurements and the next step of each."""
    out = Benchmarks(known_results(view, wanted))
    for run in runs:
        case = _Case(view, state, wanted, run, now, deployed)
        result = view.fleet.results.get(run.key)
        if result is not None:
            out.results[run.option.device_class] = result
            since = outdated_since(view, run.key) if deployed and wanted.measure.enabled else None
            out.effects += _finished(case, result) if since is None else _again(case, since, out)
        elif wanted.measure.enabled:
            _next_step(case, out)
        out.effects += _alias(case)
    out.effects += _leftovers(view, wanted)
    return out


def _again(case: _Case, since: float, out: Benchmarks) -> list[Effect]:
    """Measure what drifted, beside serving: the result we have stands until the new one is there."""
    done_at = parse_time(status(case.job).get("completionTime")) if case.job else None
    if case.job and done_at is not None and done_at <= since:
        return [] if deleting(case.job) else [_drop(case.job)]
    aside = Benchmarks()
    _next_step(case, aside)
    out.wake_at += aside.wake_at
    return aside.effects


def _finished(case: _Case, result: BenchCompleted) -> list[Effect]:
    """The result is there: say so, and give the claim back once the record holds it."""
    claim = case.view.claims.get(case.run.key)
    if claim is None or read_claim(claim).holder_uid != case.wanted.uid:
        return []
    if not any(case.run.key in (record.get("data") or {}) for record in case.view.records.values()):
        return []
    text = f"{result.tokens_per_second:.1f} tokens/s on {result.device_class}"
    return [
        Note(case.state.object, "Normal", "BenchmarkCompleted", text),
        claims.give_back(claim, case.view.policy),
    ]


def _next_step(case: _Case, out: Benchmarks) -> None:
    found = case.view.claims.get(case.run.key)
    label = case.run.option.device_class
    if found is None:
        out.open[label] = "is queued"
        out.effects.append(claims.new_claim(case.wanted, case.run, case.view.policy))
        return
    if deleting(found):
        out.open[label] = "is queued"
        return
    claim = read_claim(found)
    if claim.holder_uid != case.wanted.uid:
        _somebody_elses(case, claim, out)
    else:
        _our_own(case, claim, out)


def _somebody_elses(case: _Case, claim: Claim, out: Benchmarks) -> None:
    """An equal model measures: its result is ours too. If it is gone, we go on in its place."""
    label = case.run.option.device_class
    other = case.view.models.get(claim.holder)
    alive = other is not None and uid(other.object) == claim.holder_uid and not deleting(other.object)
    cares = alive and claim.holder in case.view.by_workload.get(case.wanted.workload, ())
    if not cares:
        out.open[label] = "is taken over from a model that is gone"
        out.effects.append(claims.take_over(claim, case.wanted, case.run, case.view.policy))
    elif case.now < claim.retry_at:
        out.failed[label] = claim.message or claim.reason
    else:
        out.open[label] = f"is measured for {claim.holder.namespace}/{claim.holder.name}"


def _our_own(case: _Case, claim: Claim, out: Benchmarks) -> None:
    job = case.job
    label = case.run.option.device_class
    if job is None:
        _without_job(case, claim, out)
        return
    if deleting(job):
        out.open[label] = "waits for its last Job to go"
        return
    if uid(job) == claim.failed_uid:
        out.effects.append(_drop(job))
        out.failed[label] = claim.message or claim.reason
        return
    if uid(job) != claim.job_uid:
        out.effects.append(claims.name_job(claim, job, case.view.policy))
    why = _failure(case, job)
    if why is None:
        out.open[label] = _progress(case, job)
        done_at = parse_time(status(job).get("completionTime"))
        if done_at is not None:
            out.wake_at.append(done_at + RESULT_GRACE)
        elif case.deployed and unplaced(case.ours):
            out.wake_at.append(_age_from(job) + BUSY_SECONDS)
        elif _stuck(case):
            out.wake_at.append(_age_from(job) + MOUNT_SECONDS)
        return
    out.failed[label] = why[1]
    out.effects += [
        claims.count_failure(claim, uid(job), why, case.now, case.view.policy),
        Note(case.state.object, "Warning", "BenchmarkFailed", f"{label}: {why[1]}"),
        _drop(job),
    ]


def _without_job(case: _Case, claim: Claim, out: Benchmarks) -> None:
    label = case.run.option.device_class
    if claim.job_uid and claim.job_uid != claim.failed_uid:
        why = ("JobDeleted", "its Job was deleted before it had a result")
        out.failed[label] = why[1]
        out.effects.append(claims.count_failure(claim, claim.job_uid, why, case.now, case.view.policy))
        return
    if case.now < claim.retry_at:
        out.failed[label] = claim.message or claim.reason
        out.wake_at.append(claim.retry_at)
        return
    run = case.run
    replica = running_replica(case.view, case.wanted, case.run) if case.deployed else ""
    if replica:
        idle_at = case.state.use.last + IDLE_SECONDS
        if in_use(case.state.use, case.now) or case.now < idle_at:
            out.open[label] = "waits until its running replica is idle"
            out.wake_at.append(max(idle_at, case.now + IDLE_SECONDS))
            return
        run = replace(run, in_place=replica)
    out.open[label] = "is started"
    out.effects += [
        Create(JOBS, bench_job(case.wanted, run, case.view.policy)),
        Note(case.state.object, "Normal", "BenchmarkStarted", f"measuring {label} with Job {job_name(run.key)}"),
    ]


def _failure(case: _Case, job: Object) -> tuple[str, str] | None:
    """(reason, sentence) when a Job ended without a result, or will not get one."""
    failed = condition(job, "Failed")
    if failed and failed.get("status") == "True":
        told = case.view.failed_runs.get(case.run.key)
        if told:
            return told.reason, f"{told.message}. {told.remedy}".removesuffix(" ").removesuffix(".")
        reason = str(failed.get("reason") or "JobFailed")
        return reason, str(failed.get("message") or reason)
    done_at = parse_time(status(job).get("completionTime"))
    if holds(job, "Complete") and (done_at is None or case.now >= done_at + RESULT_GRACE):
        return "NoResult", "its Job completed without a result"
    stuck = _stuck(case)
    if stuck and case.now >= _age_from(job) + MOUNT_SECONDS:
        return stuck
    if case.deployed and unplaced(case.ours) and case.now >= _age_from(job) + BUSY_SECONDS:
        return "DeviceBusy", "no device of this class is free; it is measured on a running replica later"
    return None


def _stuck(case: _Case) -> tuple[str, str] | None:
    return next(filter(None, (unmounted(case.view, case.wanted, pod) for pod in case.ours)), None)


def _age_from(job: Object) -> float:
    return parse_time(meta(job).get("creationTimestamp")) or 0.0


def _progress(case: _Case, job: Object) -> str:
    if holds(job, "Complete"):
        return "is done, its result is on the way"
    pods, stuck = case.ours, _stuck(case)
    if stuck:
        return f"waits: {stuck[1]}"
    if any(engine_ready(pod) for pod in pods):
        return "is measured"
    if unplaced(pods):
        return "waits for a free device"
    return "is starting its engine"


def _drop(job: Object) -> Delete:
    return Delete(JOBS, name_of(job)[0], name_of(job)[1], uid(job))


def _alias(case: _Case) -> list[Effect]:
    """The hidden name under which the bench process reaches exactly this instance through the proxy."""
    name = (case.wanted.key.namespace, job_name(case.run.key))
    known = case.view.endpoints.get(name)
    instances = instances_of(case.view, case.wanted, case.run, case.job)
    if not instances:
        gone = ModelEndpoint(namespace=name[0], model=name[1], backend=case.wanted.backend, hidden=True, gone=True)
        # Only the model that runs the Job speaks for the alias; without a Job it is an orphan, see records.
        return [Publish(gone)] if known and controller(case.job or {}) == case.wanted.uid else []
    event = ModelEndpoint(
        namespace=name[0],
        model=name[1],
        backend=case.wanted.backend,
        served_model=ENGINES[case.wanted.backend].served_model(case.wanted),
        endpoints=instances,
        hidden=True,
    )
    return [] if known == event else [Publish(event)]


def _leftovers(view: LifecycleView, wanted: Description) -> list[Effect]:
    """Jobs and claims of this model for a version of it that nobody wants any more.

    A class whose nodes are away for a while is no reason: its run may be under way, and its nodes come back.
    """
    images = images_of(view, wanted) if wanted.measure.enabled else set()
    effects: list[Effect] = []
    for name in sorted(view.jobs_of.get(wanted.uid, ())):
        job = view.jobs.get(name)
        if job is None or deleting(job):
            continue
        if annotations(job).get(WORKLOAD) != wanted.workload or measured_image(job) not in images:
            effects.append(_drop(job))
    for key in sorted(view.held.get(wanted.uid, ())):
        claim = view.claims.get(key)
        data = (claim or {}).get("data") or {}
        current = images and data.get("workload") == wanted.workload and data.get("image") in {None, *images}
        if claim and not deleting(claim) and not current:
            effects.append(claims.give_back(claim, view.policy))
    return effects
