"""Phase and conditions of a model, from everything that is known of it. The order of the cases is the rule."""

from dataclasses import dataclass

from flexinfer.contracts.events import Condition
from flexinfer.contracts.kubernetes import DEPLOYMENTS, SERVICES, Object
from flexinfer.core.lifecycle.benchmarks import Benchmarks
from flexinfer.core.lifecycle.conditions import condition
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.fit import Outlook, explain
from flexinfer.core.lifecycle.objects import condition as stored
from flexinfer.core.lifecycle.objects import name_of, status
from flexinfer.core.lifecycle.observe import Observation, Trouble, class_of
from flexinfer.core.lifecycle.phases import Phase
from flexinfer.core.lifecycle.pods import Placement
from flexinfer.core.lifecycle.scale import Want
from flexinfer.core.lifecycle.sizing import words
from flexinfer.core.lifecycle.view import LifecycleView, ModelState

SHOWN_PODS = 3


@dataclass(frozen=True, slots=True)
class Picture:
    """What was found out about one model in one round. ``place`` None: it cannot be placed yet."""

    view: LifecycleView
    state: ModelState
    wanted: Description
    look: Outlook
    bench: Benchmarks
    place: Placement | None
    deployment: Object | None
    seen: Observation
    want: Want
    gate_open: bool
    trouble: Trouble | None  # of our own writes


@dataclass(frozen=True, slots=True)
class Verdict:
    """The phase with its CamelCase reason and the sentence people read."""

    phase: Phase
    reason: str
    message: str


def judge(p: Picture) -> Verdict:
    """The phase. Serving is never hidden by a problem that does not stop it."""
    ready = int(status(p.deployment or {}).get("readyReplicas") or 0)
    if p.deployment is None:
        return _before(p)
    wants = int((p.deployment.get("spec") or {}).get("replicas", 1))
    if wants == 0 and p.want.replicas == 0:
        off = p.want.reason == "SwitchedOff"
        text = "switched off by replicas 0" if off else "scaled to zero, wakes on demand"
        return Verdict("Idle", "SwitchedOff" if off else "Idle", text)
    if ready and p.seen.ready:
        return Verdict("Running", "Serving", f"{ready} of {wants} replica(s) serve")
    trouble = p.trouble or p.seen.trouble
    if trouble:
        return Verdict("Failed" if trouble.final else "Pending", trouble.reason, trouble.message)
    if p.want.reason in {"Demand", "Busy"}:
        return Verdict("Deploying", "Waking", "starting replicas for waiting requests")
    return Verdict("Deploying", "Starting", f"0 of {wants} replica(s) are ready")


def _before(p: Picture) -> Verdict:
    if p.trouble:
        return Verdict("Failed" if p.trouble.final else "Pending", p.trouble.reason, p.trouble.message)
    if p.place is None:
        if p.look.options:
            vendors = ", ".join(sorted({option.vendor for option in p.look.options}))
            text = f"spec.image: {p.wanted.backend} has no default image for {vendors}; name one"
            return Verdict("Failed", "ImageMissing", text)
        return Verdict("Pending", *explain(p.look, p.wanted))
    if not p.gate_open:
        classes = "; ".join(f"{name} {what}" for name, what in sorted(p.bench.open.items()))
        return Verdict("Benchmarking", "Measuring", classes)
    if p.want.replicas == 0:
        return Verdict("Idle", "SwitchedOff", "switched off by replicas 0")
    return Verdict("Deploying", "Creating", "creating the workload")


def conditions_of(p: Picture, verdict: Verdict) -> tuple[Condition, ...]:
    """The five conditions."""
    serving = verdict.phase == "Running"
    moving = verdict.phase in {"Pending", "Benchmarking", "Deploying"} or (serving and _rolling(p))
    trouble = p.trouble or p.seen.trouble
    return (
        condition("Available", serving, "Serving" if serving else verdict.reason, verdict.message),
        condition("Progressing", moving, verdict.reason if moving and not serving else _progress_reason(p, verdict)),
        condition("ReplicaFailure", holds=True, reason=trouble.reason, message=trouble.message)
        if trouble and trouble.reason != "Unschedulable"
        else condition("ReplicaFailure", holds=False, reason="NoFailure"),
        _told_before(p) or benchmark_condition(p.wanted, p.bench, p.look),
        _node_condition(p),
    )


def _rolling(p: Picture) -> bool:
    found = status(p.deployment or {})
    wants = int(((p.deployment or {}).get("spec") or {}).get("replicas", 1))
    return int(found.get("updatedReplicas") or 0) < wants or int(found.get("replicas") or 0) > wants


def _progress_reason(p: Picture, verdict: Verdict) -> str:
    if verdict.phase == "Running":
        return "Updating" if _rolling(p) else "Complete"
    return verdict.reason


def _told_before(p: Picture) -> Condition | None:
    """While nobody tells of the fleet, what was found out about it stands."""
    old = stored(p.state.object, "BenchmarkComplete")
    if p.view.fleet_seen or p.look.nodes or not old or not p.wanted.measure.enabled:
        return None
    return Condition(type="BenchmarkComplete", status=old["status"], reason=old["reason"], message=old["message"])


def benchmark_condition(wanted: Description, bench: Benchmarks, look: Outlook) -> Condition:
    """Whether results exist for every usable class, or why not."""
    kind = "BenchmarkComplete"
    if not wanted.measure.enabled:
        return condition(kind, holds=None, reason="Disabled", message="spec.benchmark.enabled is false")
    if bench.open:
        text = "; ".join(f"{name} {what}" for name, what in sorted(bench.open.items()))
        return condition(kind, holds=False, reason="Measuring", message=text)
    if bench.failed:
        text = "; ".join(f"{name}: {why}" for name, why in sorted(bench.failed.items()))
        return condition(kind, holds=False, reason="BenchmarkFailed", message=f"{text}; deployed with unknown speed")
    if bench.results:
        text = "; ".join(f"{name} {r.tokens_per_second:.1f} tokens/s" for name, r in sorted(bench.results.items()))
        return condition(kind, holds=True, reason="Measured", message=text)
    return condition(kind, holds=None, reason=explain(look, wanted)[0] if not look.options else "NoImage")


def _node_condition(p: Picture) -> Condition:
    kind = "NodeSelected"
    if p.seen.scheduled and p.place:
        shown = [_placed(p, p.place, pod) for pod in p.seen.scheduled[:SHOWN_PODS]]
        more = len(p.seen.scheduled) - SHOWN_PODS
        shown += [f"and {more} more"] if more > 0 else []
        shown += filter(None, [words(p.wanted.demand)])
        return condition(kind, holds=True, reason="Scheduled", message="; ".join(shown))
    trouble = p.seen.trouble
    if trouble and trouble.reason == "Unschedulable":
        return condition(kind, holds=False, reason="Unschedulable", message=trouble.message)
    return condition(kind, holds=False, reason="NoPod" if not p.seen.pods else "Waiting")


def _placed(p: Picture, place: Placement, pod: Object) -> str:
    node = pod["spec"]["nodeName"]
    cls = class_of(p.view, p.wanted, place, node)
    parts = [cls] if cls else []
    if cls in p.bench.results:
        parts.append(f"{p.bench.results[cls].tokens_per_second:.1f} tokens/s")
    decision = p.view.decisions.get(name_of(pod))
    score = next((c.score for c in decision.candidates if c.node == node), None) if decision else None
    if score is not None:
        parts.append(f"score {score} of 10")
    return f"{name_of(pod)[1]} on {node}" + (f" ({', '.join(parts)})" if parts else "")


def write_trouble(view: LifecycleView, wanted: Description, now: float) -> Trouble | None:
    """What the API server refused of this model's children. A refusal that is not repeated when it is due again is
    of a write that is not wanted any more."""
    for name, failure in sorted(view.failures.get(wanted.key, {}).items()):
        if now >= failure.until or not any(f" {resource.plural} " in name for resource in (DEPLOYMENTS, SERVICES)):
            continue
        if failure.code == "Taken":
            return Trouble("NameTaken", f"{failure.message}; rename the model or that object", final=True)
        if failure.code == "Invalid":
            return Trouble("Rejected", f"the API server refuses the workload: {failure.message}", final=True)
        if failure.code == "Forbidden":
            quota = "exceeded quota" in failure.message
            text = f"{failure.message}; " + (
                "raise the quota or free some of it" if quota else "see the manager's RBAC"
            )
            return Trouble("QuotaExceeded" if quota else "Forbidden", text, final=False)
    return None
