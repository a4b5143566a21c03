"""All the manager knows, folded from watches, events and the outcomes of its own effects.

One writer, the fold; decisions only read. What a restart must not lose lives in the cluster (status, claims, records);
what is here beyond that is memory that a fresh process can do without.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flexinfer.contracts.events import BenchFailed, GgufFacts, ModelEndpoint, ModelPhase, NodeHardware, PlacementDecided
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.effects import Effect
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.lifecycle.description import Description, ModelKey, Problem
from flexinfer.core.lifecycle.policy import Policy

RECORDS = ModelKey("", "", "benchmark-results")
"""The key under which results are recorded and put back on the bus, and orphans of the bus are retracted."""

OWNER_UID = "flexinfer.ai/owner-uid"
BENCH_KEY = "flexinfer.ai/bench-key"
WORKLOAD = "flexinfer.ai/workload"

BURIED_KEPT = 10_000

Name = tuple[str, str]  # (namespace, name)


@dataclass(slots=True)
class Failure:
    """A write that was refused, and until when (Unix seconds) not to try the same again."""

    effect: Effect
    code: str
    message: str
    count: int
    at: float
    until: float


@dataclass(slots=True)
class Use:
    """Signs of use of one model. Times are Unix seconds by this process's clock, at receipt."""

    waiting: dict[str, tuple[int, float]] = field(default_factory=dict)  # proxy → (requests, when)
    outstanding: dict[str, tuple[int, float]] = field(default_factory=dict)
    last: float = 0.0  # last sign of use; 0: none seen by this process


@dataclass(slots=True)
class ModelState:
    """One object of ours and what this process remembers about it."""

    object: Object
    wanted: Description | Problem
    since: float  # when this process first saw it
    use: Use = field(default_factory=Use)
    woken_at: float = 0.0  # when its Deployment last went from zero to some
    noted: set[tuple[str, str]] = field(default_factory=set)  # Kubernetes Events that are said once per generation
    applied: dict[str, tuple[str, int]] = field(default_factory=dict)  # child → (fingerprint, generation after it)
    rendered: dict[str, tuple[Any, Object]] = field(default_factory=dict)  # child → (made from, manifest)


@dataclass(slots=True)
class LifecycleView:
    """Objects are kept by (namespace, name) where no other key is named."""

    policy: Policy
    boot: str = ""  # bootid of this process in the events it sends
    fleet: FleetView = field(default_factory=FleetView)
    nodes: dict[str, Object] = field(default_factory=dict)  # name → labels, taints, unschedulable
    models: dict[ModelKey, ModelState] = field(default_factory=dict)
    failures: dict[ModelKey, dict[str, Failure]] = field(default_factory=dict)  # by target of the write
    by_uid: dict[str, ModelKey] = field(default_factory=dict)
    by_name: dict[Name, tuple[ModelKey, ...]] = field(default_factory=dict)  # the one that has the name first
    by_workload: dict[str, set[ModelKey]] = field(default_factory=dict)
    by_alias: dict[str, tuple[ModelKey, ...]] = field(default_factory=dict)  # the one that has the alias first
    deployments: dict[Name, Object] = field(default_factory=dict)
    services: dict[Name, Object] = field(default_factory=dict)
    claims_of_storage: dict[Name, Object] = field(default_factory=dict)
    jobs: dict[Name, Object] = field(default_factory=dict)
    jobs_of: dict[str, set[Name]] = field(default_factory=dict)  # uid of the model → its Jobs
    claims: dict[str, Object] = field(default_factory=dict)  # claim ConfigMaps by benchmark key
    held: dict[str, set[str]] = field(default_factory=dict)  # uid of the model → benchmark keys it claims
    records: dict[str, Object] = field(default_factory=dict)  # result ConfigMaps by name
    pods: dict[str, dict[Name, Object]] = field(default_factory=dict)  # by uid of the model
    pod_owner: dict[Name, str] = field(default_factory=dict)  # pod → uid of the model
    failed_runs: dict[str, BenchFailed] = field(default_factory=dict)  # last failure on the bus, by benchmark key
    results_of: dict[str, set[str]] = field(default_factory=dict)  # workload → benchmark keys with a result
    measured_at: dict[str, float] = field(default_factory=dict)  # of results, by benchmark key
    drifted: dict[str, float] = field(default_factory=dict)  # benchmark key → when an engine was last told to be slower
    on_bus: dict[str, float] = field(default_factory=dict)  # results the bus holds: key → when measured
    unrecorded: set[str] = field(default_factory=set)  # benchmark keys whose record may not say what is known
    weights: dict[str, GgufFacts] = field(default_factory=dict)  # cache entry → its file; stays when the entry goes
    mounts: dict[str, Object] = field(default_factory=dict)  # uid of a pod → what its kubelet cannot mount, an Event
    phases: dict[Name, ModelPhase] = field(default_factory=dict)  # as the bus holds them
    endpoints: dict[Name, ModelEndpoint] = field(default_factory=dict)  # as the bus holds them, hidden ones included
    suspects: set[Name] = field(default_factory=set)  # what the bus holds of them may belong to nothing any more
    fleet_version: int = 0  # grows with every fact that can change which hardware fits
    outlooks: dict[object, tuple[int, object]] = field(default_factory=dict)  # demand → (fleet_version, Outlook)
    draining: dict[Name, float] = field(default_factory=dict)  # endpoints published as draining: since when
    decisions: dict[Name, PlacementDecided] = field(default_factory=dict)  # last attempt of each pod that exists
    buried: OrderedDict[str, None] = field(default_factory=OrderedDict)  # uids of objects that are gone for good
    listed: set[str] = field(default_factory=set)  # kinds whose first list is in
    fleet_seen: bool = False  # a snapshot of the fleet was folded
    use_since: float = 0.0  # since when signs of use reach us without a gap
    bus_up: bool = False

    def bury(self, uid: str) -> None:
        """An answer to one of our own writes may arrive after the watch said that the object is gone."""
        self.buried[uid] = None
        if len(self.buried) > BURIED_KEPT:
            self.buried.popitem(last=False)

    def suspect(self, name: Name) -> None:
        """What the bus holds of this name, or whose it is, changed."""
        event = self.endpoints.get(name)
        astray = event is not None and name not in (self.jobs if event.hidden else self.by_name)
        if astray or (name in self.phases and name not in self.by_name):
            self.suspects.add(name)
        else:
            self.suspects.discard(name)

    def fleet_changed(self) -> set[ModelKey]:
        """Which hardware fits whom may be different now: everybody is concerned."""
        self.fleet_version += 1
        return set(self.models)

    def hardware(self, node: str) -> NodeHardware | None:
        """What an agent said of a node."""
        found = self.fleet.nodes.get(node)
        return found.hardware if found else None

    def pods_of(self, uid: str) -> Iterable[Object]:
        """Pods of one model, engines and benchmarks."""
        return self.pods.get(uid, {}).values()
