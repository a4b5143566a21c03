"""The life of a model as a table: a transition that is not listed is a mistake in our own code."""

from typing import Literal, get_args

Phase = Literal["Pending", "Benchmarking", "Deploying", "Running", "Idle", "Failed", "Terminating"]
PHASES: tuple[Phase, ...] = get_args(Phase)

MEANING: dict[Phase, str] = {
    "Pending": "accepted, waiting for hardware or scheduling",
    "Benchmarking": "measuring at least one device class",
    "Deploying": "workload created, not yet ready",
    "Running": "serving",
    "Idle": "scaled to zero, wakes on demand",
    "Failed": "needs a change by the user; says which",
    "Terminating": "cleanup in progress",
}

# Decisions are made from the whole observed state, so a model whose manager was away for a while may have moved on
# by itself: pods became ready, were scaled, or broke. Those jumps are listed because they are observed, not chosen.
TRANSITIONS: dict[tuple[Phase | None, Phase], str] = {
    (None, "Pending"): "accepted",
    (None, "Failed"): "the spec cannot work",
    (None, "Terminating"): "deleted before it was accepted",
    ("Pending", "Benchmarking"): "a device class has no result",
    ("Pending", "Deploying"): "measured already, or benchmarks are off",
    ("Pending", "Running"): "its pods were running already, or found a node",
    ("Pending", "Idle"): "switched off, or at zero already",
    ("Pending", "Failed"): "the spec cannot work",
    ("Pending", "Terminating"): "deleted",
    ("Benchmarking", "Pending"): "the hardware went away",
    ("Benchmarking", "Deploying"): "every class is measured, or the gate timed out",
    ("Benchmarking", "Running"): "its pods became ready while nobody watched",
    ("Benchmarking", "Idle"): "switched off",
    ("Benchmarking", "Failed"): "the spec cannot work any more",
    ("Benchmarking", "Terminating"): "deleted",
    ("Deploying", "Pending"): "no node takes the pods",
    ("Deploying", "Benchmarking"): "changed before it was deployed",
    ("Deploying", "Running"): "a replica is ready",
    ("Deploying", "Idle"): "switched off, or idle before it was ready",
    ("Deploying", "Failed"): "the pods cannot run",
    ("Deploying", "Terminating"): "deleted",
    ("Running", "Benchmarking"): "its workload was deleted before it was measured",
    ("Running", "Deploying"): "no replica is ready any more",
    ("Running", "Pending"): "no node takes the pods any more",
    ("Running", "Idle"): "nobody asked for the idle timeout, or switched off",
    ("Running", "Failed"): "the pods cannot run any more",
    ("Running", "Terminating"): "deleted",
    ("Idle", "Benchmarking"): "switched on, or its workload was deleted, before it was measured",
    ("Idle", "Deploying"): "demand, or switched on",
    ("Idle", "Pending"): "woken, but no node takes the pods",
    ("Idle", "Running"): "woken while nobody watched",
    ("Idle", "Failed"): "the spec cannot work any more",
    ("Idle", "Terminating"): "deleted",
    ("Failed", "Pending"): "changed by the user",
    ("Failed", "Benchmarking"): "changed by the user, not measured yet",
    ("Failed", "Deploying"): "changed by the user, or the cause went away",
    ("Failed", "Running"): "the cause went away",
    ("Failed", "Idle"): "switched off",
    ("Failed", "Terminating"): "deleted",
}


class IllegalTransition(ValueError):
    """Our own code asked for a transition that the table does not have."""


def advance(previous: Phase | None, following: Phase) -> bool:
    """Whether the phase changes. Raises IllegalTransition if it must not change that way.

    >>> advance("Deploying", "Running"), advance("Running", "Running")
    (True, False)
    """
    if previous == following:
        return False
    if (previous, following) not in TRANSITIONS:
        raise IllegalTransition(f"{previous or 'a new model'} cannot become {following}")
    return True


def phase_of(text: object) -> Phase | None:
    """A phase as read from a status; None for anything that is no phase of ours."""
    return next((phase for phase in PHASES if phase == text), None)
