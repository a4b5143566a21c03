"""Claims: what answered and bound pods take of a node before telemetry shows it.

A pod is reserved on its best node when answered, moved when the Pod watch shows where it went, and freed when
telemetry shows the use, the pod ends, or HOLD_SECONDS pass. Whole devices stay taken while the pod lives.
"""

from dataclasses import dataclass
from math import inf

from flexinfer.core.fleet.pods import Ask
from flexinfer.core.fleet.view import Claim, FleetView, NodeView

HOLD_SECONDS = 600.0
SHOWN_SHARE = 0.5  # of the estimate: engines grow into the rest, estimates are rarely exact


@dataclass(frozen=True, slots=True)
class PodRef:
    """Which pod claims."""

    uid: str
    namespace: str = ""
    name: str = ""


def _claim(pod: PodRef, ask: Ask, at: float, *, bound: bool) -> Claim:
    return Claim(
        pod.uid, ask.vendor, ask.whole, ask.memory_mib, at, bound, namespace=pod.namespace, name=pod.name
    )  # fmt: skip


def reserve(view: FleetView, node: str, pod: PodRef, ask: Ask, until: float) -> None:
    """Hold what ``pod`` asks on ``node`` until it is bound or ``until``; a bound pod is not moved back."""
    held = view.claimed_on.get(pod.uid)
    if held is not None and view.nodes[held].claims[pod.uid].bound:
        return
    release(view, pod.uid)
    if ask.whole or ask.memory_mib:
        _put(view, node, _claim(pod, ask, until, bound=False))


def bind(view: FleetView, node: str, pod: PodRef, ask: Ask, at: float, *, live: bool) -> None:
    """The Pod watch shows ``pod`` on ``node`` since ``at``.

    ``live`` tells that telemetry of before is known, against which the use will show; a claim rebuilt from a list
    waits for the engine to be listed instead.
    """
    held = view.claimed_on.get(pod.uid)
    if held == node and view.nodes[node].claims[pod.uid].bound:
        return
    release(view, pod.uid)
    claim = _claim(pod, ask, at, bound=True)
    if live:
        claim.baseline_mib = free_total(view.node(node), ask.vendor)
    _put(view, node, claim)


def release(view: FleetView, uid: str) -> bool:
    """The pod holds nothing any more; tells whether it did."""
    name = view.claimed_on.pop(uid, None)
    if name is None:
        return False
    claim = view.nodes[name].claims.pop(uid)
    _mix(view, name, claim)
    view.touch(name)
    return True


def _put(view: FleetView, name: str, claim: Claim) -> None:
    node = view.node(name)
    node.claims[claim.uid] = claim
    view.claimed_on[claim.uid] = name
    _mix(view, name, claim)
    view.arm(node, _ends(claim))
    view.touch(name)


def _mix(view: FleetView, name: str, claim: Claim) -> None:
    view.mix(claim.uid, name, claim.bound, claim.whole, claim.memory_mib)


def _ends(claim: Claim) -> float:
    if claim.bound:
        return inf if claim.shown else claim.at + HOLD_SECONDS
    return claim.at


def expire(view: FleetView, node: NodeView, now: float) -> float:
    """Drop lapsed reservations, stop holding memory that never showed; when the next one ends."""
    for claim in list(node.claims.values()):
        if _ends(claim) > now:
            continue
        if claim.bound:
            claim.shown = True
        else:
            release(view, claim.uid)
    return min((_ends(claim) for claim in node.claims.values()), default=inf)


def free_total(node: NodeView, vendor: str) -> float | None:
    """Free memory in MiB by the last telemetry: of the host for CPU, else of all devices of the vendor."""
    if node.telemetry is None:
        return None
    if vendor == "CPU":
        return node.telemetry.memory_free_mib
    of_vendor = {d.uuid for d in node.hardware.devices if vendor in {"", d.vendor}} if node.hardware else set()
    known = [d.memory_free_mib for d in node.telemetry.devices if d.uuid in of_vendor]
    numbers = [value for value in known if value is not None]
    return float(sum(numbers)) if numbers else None


def settle(node: NodeView) -> None:
    """New telemetry: which bound pods does it show? Memory that vanished is credited to the oldest first."""
    waiting = [claim for claim in node.claims.values() if claim.bound and not claim.shown]
    if not waiting or node.telemetry is None:
        return
    listed = {(engine.namespace, engine.pod) for engine in node.telemetry.engines}
    for claim in sorted(waiting, key=lambda claim: (claim.at, claim.uid)):
        if claim.at > node.telemetry_at:
            continue
        if (claim.namespace, claim.name) in listed:
            claim.shown = True
        elif claim.memory_mib and claim.baseline_mib is not None:
            free = free_total(node, claim.vendor)
            used = claim.baseline_mib - free if free is not None else 0.0
            claim.shown = used >= SHOWN_SHARE * claim.memory_mib
        if claim.shown and claim.memory_mib:
            for other in waiting:
                # What this pod took must not count again as the use of another.
                if not other.shown and other.baseline_mib is not None and other.vendor == claim.vendor:
                    other.baseline_mib -= claim.memory_mib
