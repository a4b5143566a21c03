"""Benchmark results into the view, from wherever they arrive: the bus, a termination message, the record."""

from msgspec import DecodeError, json
from msgspec.structs import replace

from flexinfer.contracts.envelope import MalformedEvent
from flexinfer.contracts.events import BenchCompleted, BenchFailed
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import BENCHMARK_APP_LABEL, POD_BENCHMARK_KEY, POD_MODEL
from flexinfer.contracts.termination import decode_outcome
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.fetching import failures as fetching
from flexinfer.core.lifecycle.objects import annotations, containers, labels, name_of, parse_time, uid, version_number
from flexinfer.core.lifecycle.view import BENCH_KEY, RECORDS, LifecycleView

CLAIM_APP_LABEL = "flexinfer-benchmark-claims"
BENCH_CONTAINER = "bench"
ENGINE_CONTAINER = "engine"
REMEASURE_SECONDS = 3600.0  # a sick node drifts from a new result as from the old one: it must not keep its class busy

_record = json.Decoder(dict[str, object])
_result = json.Decoder(BenchCompleted)


def put_result(view: LifecycleView, result: BenchCompleted, measured_at: float) -> set[ModelKey]:
    """The newest result of a key wins; returns who cares."""
    measured_at = round(measured_at, 3)  # as the record keeps it
    if measured_at < view.measured_at.get(result.key, 0.0):
        return set()
    if result.node and not result.virtual:
        hardware = view.hardware(result.node)
        result = replace(result, virtual=bool(hardware and hardware.virtual))
    if result.image_digest is None:
        result = replace(result, image_digest=_digest_seen(view, result))
    if view.fleet.results.get(result.key) == result and view.measured_at.get(result.key) == measured_at:
        return set()
    view.fleet.results[result.key] = result
    view.results_of.setdefault(result.workload, set()).add(result.key)
    view.fleet.version += 1
    view.measured_at[result.key] = measured_at
    view.unrecorded.add(result.key)
    view.failed_runs.pop(result.key, None)
    return {RECORDS, *view.by_workload.get(result.workload, ())}


def put_failure(view: LifecycleView, failure: BenchFailed) -> set[ModelKey]:
    """A run ended without a result."""
    view.failed_runs[failure.key] = failure
    return set(view.by_name.get((failure.namespace, failure.model), ()))


def put_drift(view: LifecycleView, key: str, at: float) -> set[ModelKey]:
    """An engine is slower than the result of this key says."""
    view.drifted[key] = max(at, view.drifted.get(key, 0.0))
    result = view.fleet.results.get(key)
    return set(view.by_workload.get(result.workload, ())) if result else set()


def outdated_since(view: LifecycleView, key: str) -> float | None:
    """When drift put a result in doubt that is old enough to be measured again; None: it stands."""
    at = view.drifted.get(key, 0.0)
    return at if at - view.measured_at.get(key, 0.0) > REMEASURE_SECONDS else None


def image_digest(pod: Object, container: str) -> str | None:
    """``sha256:…`` of the image a container really runs, if the kubelet tells."""
    for name, entry in containers(pod):
        found = str(entry.get("imageID") or "").rpartition("@")[2] if name == container else ""
        if found.startswith("sha256:"):
            return found
    return None


def _digest_seen(view: LifecycleView, result: BenchCompleted) -> str | None:
    """The digest of the engine in the bench pod of this run; a known one stays when the pod is gone."""
    for key in view.by_name.get((result.namespace, result.model), ()):
        for pod in view.pods_of(uid(view.models[key].object)):
            if labels(pod).get(BENCH_KEY) == result.key:
                return image_digest(pod, ENGINE_CONTAINER)
    known = view.fleet.results.get(result.key)
    return known.image_digest if known else None


def check_digest(view: LifecycleView, pod: Object, at: float) -> set[ModelKey]:
    """A replica runs other bits than were measured under the same reference: the tag has moved, so measure again."""
    keys = view.results_of.get(annotations(pod).get(POD_BENCHMARK_KEY, ""), ())
    found = image_digest(pod, ENGINE_CONTAINER) if keys and BENCH_KEY not in labels(pod) else None
    images = {c.get("image") for c in (pod.get("spec") or {}).get("containers") or []}
    concerned: set[ModelKey] = set()
    for key in keys if found else ():
        result = view.fleet.results[key]
        if result.image in images and result.image_digest not in {None, found}:
            concerned |= put_drift(view, key, at)
    return concerned


def read_termination(view: LifecycleView, pod: Object, at: float) -> set[ModelKey]:
    """The outcome a bench container left behind, if the pod is one and it ended."""
    if BENCH_KEY not in labels(pod):
        return set()
    for name, entry in containers(pod):
        if name.startswith(fetching.CONTAINER):
            unfetched = fetching.decode(str(((entry.get("state") or {}).get("terminated") or {}).get("message") or ""))
            if unfetched:
                return put_failure(view, _not_fetched(pod, unfetched))
        ended = (entry.get("state") or {}).get("terminated") if name == BENCH_CONTAINER else None
        if not ended or not ended.get("message"):
            continue
        try:
            outcome = decode_outcome(str(ended["message"]))
        except MalformedEvent:
            return set()  # the Job's own failure tells the rest
        finished = min(parse_time(ended.get("finishedAt")) or at, at)
        if isinstance(outcome, BenchFailed):
            return put_failure(view, outcome)
        known = view.fleet.results.get(outcome.key)
        if known and known.tokens_per_second == outcome.tokens_per_second:
            return set()  # the same run, told by the bus with more detail
        return put_result(view, outcome, finished)
    return set()


def _not_fetched(pod: Object, why: fetching.FetchFailed) -> BenchFailed:
    namespace, name = name_of(pod)
    return BenchFailed(
        key=labels(pod)[BENCH_KEY],
        namespace=namespace or "default",
        model=annotations(pod).get(POD_MODEL) or name,
        reason=why.reason,
        message=why.message,
        remedy=why.remedy,
    )


def put_configmap(view: LifecycleView, obj: Object) -> set[ModelKey]:
    """A claim or a part of the record."""
    app = labels(obj).get("app")
    name = name_of(obj)[1]
    if app == CLAIM_APP_LABEL:
        return _put_claim(view, name, obj)
    if app != BENCHMARK_APP_LABEL:
        return set()
    before = (view.records.get(name) or {}).get("data") or {}
    view.records[name] = obj
    data = obj.get("data") or {}
    keys = {RECORDS}
    for key in [key for key in before.keys() | data.keys() if before.get(key) != data.get(key)]:
        entry = read_record(data[key]) if key in data else None
        if entry:
            keys |= put_result(view, *entry)
        if key in view.fleet.results:
            (view.unrecorded.discard if data.get(key) == record_of(view, key) else view.unrecorded.add)(key)
        if key in view.claims:  # its holder waits for the record before it gives the claim back
            keys |= view.by_workload.get((view.claims[key].get("data") or {}).get("workload", ""), set())
    return keys


def remove_configmap(view: LifecycleView, obj: Object) -> set[ModelKey]:
    """A claim was given back, or somebody deleted a part of the record, which is then written again."""
    name = name_of(obj)[1]
    lost = (view.records.pop(name, None) or {}).get("data") or {}
    view.unrecorded |= lost.keys() & view.fleet.results.keys()
    claim = view.claims.pop(name, None)
    if claim is None:
        return {RECORDS}
    data = claim.get("data") or {}
    view.held.get(data.get("holderUid", ""), set()).discard(name)
    return set(view.by_workload.get(data.get("workload", ""), ()))


def _put_claim(view: LifecycleView, name: str, obj: Object) -> set[ModelKey]:
    old = view.claims.get(name)
    before, after = version_number(old or {}), version_number(obj)
    if before is not None and after is not None and after < before:
        return set()
    if old is not None:
        view.held.get((old.get("data") or {}).get("holderUid", ""), set()).discard(name)
    view.claims[name] = obj
    data = obj.get("data") or {}
    view.held.setdefault(data.get("holderUid", ""), set()).add(name)
    return set(view.by_workload.get(data.get("workload", ""), ()))


def record_of(view: LifecycleView, key: str) -> str:
    """What the record is to say of a known result."""
    return write_record(view.fleet.results[key], view.measured_at.get(key, 0.0))


def write_record(result: BenchCompleted, measured_at: float) -> str:
    """One result as the record keeps it: the event's payload with ``observedAt`` (Unix seconds) beside it."""
    return json.encode({**_record.decode(json.encode(result)), "observedAt": measured_at}).decode()


def read_record(text: str) -> tuple[BenchCompleted, float] | None:
    """The inverse; None for text that is no result, which people may put there."""
    try:
        measured_at = _record.decode(text).get("observedAt", 0.0)
        return _result.decode(text), float(measured_at) if isinstance(measured_at, int | float) else 0.0
    except DecodeError:
        return None
