"""The decision about one key, from the whole view of it: pure, repeatable, and empty when nothing is to be done."""

from flexinfer.contracts.labels import FINALIZER
from flexinfer.core.effects import Decision, Effect, Note, Patch, Publish
from flexinfer.core.lifecycle.assess import Picture, Verdict, conditions_of, judge, write_trouble
from flexinfer.core.lifecycle.benchmarks import Benchmarks, plan_benchmarks, runs_of
from flexinfer.core.lifecycle.children import asked_place, own_deployment, plan_children, settled_place, usable
from flexinfer.core.lifecycle.conditions import condition, false_since
from flexinfer.core.lifecycle.description import Description, ModelKey, Problem
from flexinfer.core.lifecycle.fit import Outlook, outlook
from flexinfer.core.lifecycle.fold import due
from flexinfer.core.lifecycle.fold_models import DUPLICATE_NAME
from flexinfer.core.lifecycle.naming import RESOURCES
from flexinfer.core.lifecycle.objects import deleting, meta, status, write_time
from flexinfer.core.lifecycle.observe import Observation, observe
from flexinfer.core.lifecycle.pods import Placement
from flexinfer.core.lifecycle.records import plan_records
from flexinfer.core.lifecycle.removal import plan_removal, retract
from flexinfer.core.lifecycle.routing import alias_owner, plan_endpoint
from flexinfer.core.lifecycle.scale import want_replicas
from flexinfer.core.lifecycle.sizing import sized
from flexinfer.core.lifecycle.status import Figures, Report, plan_status
from flexinfer.core.lifecycle.view import RECORDS, LifecycleView, ModelState

NEEDED = frozenset({"models", "modeldeployments", "deployments", "services", "jobs", "pods", "configmaps", "nodes"})
"""Kinds whose lists must be in before anything is decided: absence must be known, not assumed."""


def plan(view: LifecycleView, key: ModelKey, now: float) -> Decision:
    """What to do about one key now. Raises IllegalTransition if the phase table is violated."""
    if not view.listed >= NEEDED:
        return Decision()
    found = _plan(view, key, now)
    held = due(view, key, found.effects, now)
    wake = [at for at in (found.wake_at, held.wake_at) if at is not None]
    return Decision(held.effects, min(wake, default=None))


def _plan(view: LifecycleView, key: ModelKey, now: float) -> Decision:
    if key == RECORDS:
        return plan_records(view)
    state = view.models.get(key)
    if state is None:
        return retract(view, key)
    if deleting(state.object):
        return plan_removal(view, key, state, now)
    wanted = _wanted(view, key, state)
    effects = _finalizer(key, state)
    if isinstance(wanted, Problem):
        return Decision((*effects, *_rejected(view, key, state, wanted, now)))
    effects += _remarks(view, state, wanted)
    return _live(view, state, wanted, effects, now)


def _wanted(view: LifecycleView, key: ModelKey, state: ModelState) -> Description | Problem:
    first = view.by_name[(key.namespace, key.name)][0]
    if first != key:
        text = f"a {first.kind} of this name was there first; rename one of them"
        return Problem(DUPLICATE_NAME, "metadata.name", text)
    return state.wanted


def _finalizer(key: ModelKey, state: ModelState) -> list[Effect]:
    found = meta(state.object)
    present = found.get("finalizers") or []
    if FINALIZER in present:
        return []
    body = {"metadata": {"finalizers": [*present, FINALIZER], "resourceVersion": found.get("resourceVersion")}}
    return [Patch(RESOURCES[key.kind], key.namespace, key.name, body)]


def _rejected(view: LifecycleView, key: ModelKey, state: ModelState, problem: Problem, now: float) -> list[Effect]:
    """Say what is wrong. What runs from an earlier, good spec goes on serving."""
    verdict = Verdict("Failed", problem.reason, problem.sentence)
    kept = status(state.object)
    figures = Figures(
        int(kept.get("replicas") or 0),
        int(kept.get("readyReplicas") or 0),
        kept.get("endpoints") or [],
        kept.get("benchmarks") or [],
    )
    conditions = (
        condition("Available", holds=False, reason=problem.reason, message=problem.sentence),
        condition("Progressing", holds=False, reason=problem.reason),
    )
    effects = plan_status(view, key, state, Report(verdict, conditions, figures), now)
    if problem.reason == DUPLICATE_NAME:
        # On the bus the name belongs to the other object.
        return [effect for effect in effects if not isinstance(effect, Publish)]
    return effects


def _remarks(view: LifecycleView, state: ModelState, wanted: Description) -> list[Effect]:
    """Warnings about what has no effect, once for each generation of the spec."""
    if int(status(state.object).get("observedGeneration") or 0) == wanted.generation and wanted.generation:
        return []
    notes = [("FieldIgnored", f"{path} has no effect: {remedy}") for path, remedy in wanted.ignored]
    for alias in wanted.aliases:
        owner = alias_owner(view, wanted, alias)
        if owner != wanted.key:
            whose = f"{owner.namespace}/{owner.name}"
            text = f"alias {alias!r} belongs to {whose} already; choose another under litellm.aliases"
            notes.append(("DuplicateAlias", text))
    return [Note(state.object, "Warning", reason, text) for reason, text in notes if (reason, text) not in state.noted]


def _live(view: LifecycleView, state: ModelState, wanted: Description, first: list[Effect], now: float) -> Decision:
    deployment = own_deployment(view, wanted)
    wanted = sized(view, wanted, deployment)
    look = outlook(view, wanted)
    options = usable(look.options, wanted, view)
    bench = plan_benchmarks(view, state, wanted, runs_of(view, wanted, options), now, deployed=deployment is not None)
    speeds = {name: result.tokens_per_second for name, result in bench.results.items()}
    place = settled_place(wanted, deployment, Outlook(options, look.misses, look.nodes), speeds)
    gate_at = _gate_until(view, state, wanted, now)
    if place is None and not look.options and not look.nodes and now >= gate_at:
        place = asked_place(wanted)  # nobody tells us of the fleet: the scheduler must decide alone
    gate_open = bench.settled or now >= gate_at
    signs = view.use_since if view.bus_up else 0.0
    want = want_replicas(
        wanted.scale, state, deployment, view.draining.get((wanted.key.namespace, wanted.key.name)), signs, now
    )
    effects = [*first, *bench.effects]
    if place is not None and (gate_open or deployment is not None):
        effects += plan_children(view, state, wanted, place, want.replicas, hold=not gate_open)
    seen = observe(view, wanted, place or Placement("CPU", 0), deployment, speeds)
    picture = Picture(
        view, state, wanted, look, bench, place, deployment, seen, want, gate_open, write_trouble(view, wanted, now)
    )
    verdict = judge(picture)
    effects += plan_endpoint(view, wanted, seen.endpoints, want, verdict)
    report = Report(verdict, conditions_of(picture, verdict), _figures(view, bench, seen, picture))
    effects += plan_status(view, wanted.key, state, report, now)
    wake = [*bench.wake_at, *([want.wake_at] if want.wake_at else [])]
    wake += [failure.until for failure in view.failures.get(wanted.key, {}).values()]
    if place is None or not gate_open:
        wake.append(gate_at)
    return Decision(tuple(effects), min((at for at in wake if at > now), default=None))


def _gate_until(view: LifecycleView, state: ModelState, wanted: Description, now: float) -> float:
    """When to stop waiting for results: counted from the stored condition, so that a restart does not start over."""
    seconds = view.policy.gate_timeout if wanted.measure.gate_seconds is None else wanted.measure.gate_seconds
    since = false_since(state.object, "BenchmarkComplete")
    if since is None:
        since = now if view.fleet_seen else state.since
    return since + seconds


def _figures(view: LifecycleView, bench: Benchmarks, seen: Observation, picture: Picture) -> Figures:
    endpoints = [
        {
            "url": entry.url,
            "node": entry.node or "",
            "deviceClass": entry.device_class or "",
            **({} if entry.tokens_per_second is None else {"tokensPerSecond": entry.tokens_per_second}),
        }
        for entry in seen.endpoints
        if entry.state == "ready"
    ]
    benchmarks = [
        {
            "deviceClass": name,
            "tokensPerSecond": result.tokens_per_second,
            "observedAt": write_time(view.measured_at.get(result.key, 0.0)),
        }
        for name, result in sorted(bench.results.items())
    ]
    running = [entry.tokens_per_second for entry in seen.endpoints if entry.tokens_per_second is not None]
    best = max((result.tokens_per_second for result in bench.results.values()), default=None)
    ready = int(status(picture.deployment or {}).get("readyReplicas") or 0)
    return Figures(len(seen.pods), ready, endpoints, benchmarks, max(running, default=best))
