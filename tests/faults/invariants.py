"""What must hold while anything breaks, as a fold over facts: the same facts, the same verdicts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted, ModelEndpoint, ModelPhase, PlacementDecided
from flexinfer.contracts.kubernetes import CONFIGMAPS, JOBS, MODELDEPLOYMENTS, PODS, Object
from flexinfer.contracts.labels import BENCHMARK_APP_LABEL
from flexinfer.core.lifecycle.fold_results import CLAIM_APP_LABEL
from flexinfer.core.lifecycle.phases import TRANSITIONS, phase_of
from flexinfer.core.lifecycle.view import BENCH_KEY, OWNER_UID
from flexinfer.core.placement.checks import NO_FACTS
from flexinfer.ports import BusFact, KubeFact, Relisted, Snapshot

# A manager may have been frozen for a minute between reading that a pod is ready and saying so.
STALE_SECONDS = 90.0
# Nobody leads for a while, the API is away, then the watch of the next leader is cut: each costs some of this.
STUCK_SECONDS = 240.0
WATCHED = (MODELDEPLOYMENTS, PODS, JOBS, CONFIGMAPS)
FOLLOWED = (BenchCompleted, PlacementDecided, ModelEndpoint, ModelPhase)

Name = tuple[str, str]


@dataclass(slots=True)
class Invariants:
    """``broken`` collects sentences; each is said once."""

    models: dict[Name, Object] = field(default_factory=dict)
    pods: dict[Name, Object] = field(default_factory=dict)
    jobs: dict[Name, Object] = field(default_factory=dict)
    shards: dict[str, Object] = field(default_factory=dict)  # of the record of results, by name
    claims: dict[str, Object] = field(default_factory=dict)
    completed: dict[str, float] = field(default_factory=dict)  # key → when the bus told it
    recorded: set[str] = field(default_factory=set)
    serving_at: dict[str, float] = field(default_factory=dict)  # uid of a model → when an engine was last seen ready
    dark_since: dict[str, float] = field(default_factory=dict)  # uid of a model that is Running and has no engine
    broken: list[str] = field(default_factory=list)
    facts: int = 0
    transitions: int = 0
    decisions: int = 0

    def kube(self, at: float, fact: KubeFact) -> None:
        """A list or a change."""
        self.facts += 1
        fold = {
            MODELDEPLOYMENTS.plural: self._model, PODS.plural: self._pod, JOBS.plural: self._job,
            CONFIGMAPS.plural: self._configmap,
        }.get(fact.plural)  # fmt: skip
        if fold is None:
            return
        if isinstance(fact, Relisted):
            for obj in fact.objects:
                fold(at, obj, gone=False)
        else:
            fold(at, fact.object, gone=fact.action == "DELETED")

    def bus(self, at: float, fact: BusFact) -> None:
        """What was told."""
        self.facts += 1
        for event in fact.events if isinstance(fact, Snapshot) else (fact,):
            self._event(at, event)

    def tick(self, at: float) -> None:
        """Time passed: a model that is said to run has an engine, but for the time that news may take."""
        for name, model in self.models.items():
            uid, running = model["metadata"]["uid"], (model.get("status") or {}).get("phase") == "Running"
            if not running or self.engines(model):
                self.dark_since.pop(uid, None)
            elif at - self.dark_since.setdefault(uid, at) > STUCK_SECONDS:
                self.dark_since[uid] = at
                self._say(at, f"{'/'.join(name)} is Running and had no ready engine for {STUCK_SECONDS:.0f} s")

    def unrecorded(self) -> set[str]:
        """Keys of results that were completed and are in no record."""
        return set(self.completed) - self.recorded

    def engines(self, model: Object) -> list[Object]:
        """Engine pods of a model that are ready."""
        uid = model["metadata"]["uid"]
        return [pod for pod in self.pods.values() if _owner(pod) == uid and not _bench_key(pod) and _ready(pod)]

    def orphans(self) -> list[str]:
        """Children whose model is gone."""
        alive = {model["metadata"]["uid"] for model in self.models.values()}
        children = [*self.pods.items(), *self.jobs.items()]
        return ["/".join(name) for name, child in children if _owner(child) and _owner(child) not in alive]

    # --- folds -------------------------------------------------------------------------------------------------

    def _say(self, at: float, text: str) -> None:
        self.broken.append(f"{at:.3f} {text}")

    def _model(self, at: float, obj: Object, *, gone: bool) -> None:
        name = _name(obj)
        old = self.models.pop(name, None)
        if gone:
            return
        self.models[name] = obj
        if old is not None and old["metadata"]["uid"] != obj["metadata"]["uid"]:
            old = None
        before, after = (phase_of((o or {}).get("status", {}).get("phase")) for o in (old, obj))
        if after is None or before == after:
            return
        self.transitions += 1
        if old is not None and (before, after) not in TRANSITIONS:
            self._say(at, f"phase of {'/'.join(name)} went {before} → {after}, which the table does not have")
        if after == "Running":
            self._runs(at, obj)

    def _runs(self, at: float, obj: Object) -> None:
        name, status = "/".join(_name(obj)), obj["status"]
        if not status.get("readyReplicas") or not status.get("endpoints"):
            self._say(at, f"{name} became Running without a ready replica in its own status")
        if at - self.serving_at.get(obj["metadata"]["uid"], 0.0) > STALE_SECONDS:
            self._say(at, f"{name} became Running and no engine of it was ready for {STALE_SECONDS:.0f} s")

    def _pod(self, at: float, obj: Object, *, gone: bool) -> None:
        name = _name(obj)
        old = self.pods.pop(name, None)
        if old is not None and _ready(old) and not _bench_key(old):
            self.serving_at[_owner(old)] = at  # it was until now
        if gone:
            return
        self.pods[name] = obj
        if _ready(obj) and not _bench_key(obj):
            self.serving_at[_owner(obj)] = at
        self._alone(at, self.pods.values(), _bench_key(obj), "pods")

    def _job(self, at: float, obj: Object, *, gone: bool) -> None:
        self.jobs.pop(_name(obj), None)
        if not gone:
            self.jobs[_name(obj)] = obj
            self._alone(at, self.jobs.values(), _bench_key(obj), "Jobs")

    def _alone(self, at: float, objects: Iterable[Object], key: str, what: str) -> None:
        live = ["/".join(_name(obj)) for obj in objects if key and _bench_key(obj) == key and _live(obj)]
        if len(live) > 1:
            self._say(at, f"two {what} measure {key}: {', '.join(sorted(live))}")

    def _configmap(self, at: float, obj: Object, *, gone: bool) -> None:
        app = (obj["metadata"].get("labels") or {}).get("app")
        kept = {BENCHMARK_APP_LABEL: self.shards, CLAIM_APP_LABEL: self.claims}.get(str(app))
        if kept is None:
            return
        kept.pop(_name(obj)[1], None)
        if not gone:
            kept[_name(obj)[1]] = obj
        now = {key for shard in self.shards.values() for key in shard.get("data") or {}}
        for key in sorted(self.recorded - now):
            self._say(at, f"the result {key} was recorded and is not any more")
        self.recorded = now

    def _event(self, at: float, event: Event) -> None:
        match event.data:
            case BenchCompleted(key=key):
                self.completed.setdefault(key, at)
            case PlacementDecided() as decided:
                self.decisions += 1
                blind = decided.reasons.get(NO_FACTS.text, 0)
                if decided.considered and blind == decided.considered:
                    self._say(at, f"{decided.namespace}/{decided.pod} was decided from an empty view")


def _name(obj: Object) -> Name:
    meta = obj["metadata"]
    return str(meta.get("namespace", "")), str(meta["name"])


def _labels(obj: Object) -> dict[str, Any]:
    return obj["metadata"].get("labels") or {}


def _owner(obj: Object) -> str:
    return str(_labels(obj).get(OWNER_UID, ""))


def _bench_key(obj: Object) -> str:
    return str(_labels(obj).get(BENCH_KEY, ""))


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _live(obj: Object) -> bool:
    """A Job or a pod that measures, or will."""
    status = obj.get("status") or {}
    ended = status.get("phase") in {"Succeeded", "Failed"} or any(
        one["type"] in {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"} and one["status"] == "True"
        for one in status.get("conditions") or []
    )
    return not ended and not obj["metadata"].get("deletionTimestamp")
