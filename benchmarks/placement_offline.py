"""The most any policy could have served, knowing all that comes: exact, for small cases.

A device may be given any set of pods that fits into its memory at every moment. Each such set is one column of a whole
number program, with the tokens it serves as its worth, computed by the same formula as in the world; each pod is in at
most one chosen set, each kind of card is used as often as it is there. Pods do not move, as in the world; beyond it,
the solver may pick the device within a node. HiGHS proves the optimum.
"""

import math
from collections.abc import Iterator
from itertools import combinations, pairwise

import highspy
from placement_cases import CARDS, Case, Pod, World, served

MOST_PODS = 14


class NoOptimum(RuntimeError):
    """The solver gave up; the text is its reason."""


def best_possible(case: Case) -> float:
    """Mean tokens/s over the case. Raises ValueError for more than MOST_PODS pods, NoOptimum."""
    if len(case.pods) > MOST_PODS:
        raise ValueError(f"{len(case.pods)} pods are too many for an exact answer; at most {MOST_PODS}")
    world = World(case)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    solver.setOptionValue("mip_rel_gap", 0.0)
    of_pod: list[list[highspy.highs.highs_var]] = [[] for _ in case.pods]
    worths = []
    for kind in sorted({node.card for node in case.nodes}):
        count = sum(node.count for node in case.nodes if node.card == kind)
        mine = []
        for chosen in _sets(world, kind):
            column = solver.addIntegral(lb=0, ub=count)
            mine.append(column)
            worths.append((_tokens(world, chosen, kind), column))
            for pod in chosen:
                of_pod[pod.number].append(column)
        if mine:
            solver.addConstr(solver.qsum(mine) <= count)
    for columns in of_pod:
        if columns:
            solver.addConstr(solver.qsum(columns) <= 1)
    if not worths:
        return 0.0
    solver.maximize(solver.qsum(worth * column for worth, column in worths))
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise NoOptimum(solver.modelStatusToString(status))
    return float(solver.getObjectiveValue()) / case.end


def _sets(world: World, kind: int) -> Iterator[tuple[Pod, ...]]:
    """Every set of pods that fits on a card, smallest first; what does not fit does not grow."""
    case, card = world.case, CARDS[kind]
    able = [pod for pod in case.pods if pod.vendor in {"", card.vendor}]
    fitting: set[frozenset[int]] = {frozenset()}
    for size in range(1, len(able) + 1):
        found = []
        for chosen in combinations(able, size):
            numbers = frozenset(pod.number for pod in chosen)
            if numbers - {chosen[-1].number} in fitting and _fits(case, chosen, card.memory_mib):
                found.append(chosen)
        if not found:
            return
        fitting |= {frozenset(pod.number for pod in chosen) for chosen in found}
        yield from found


def _fits(case: Case, chosen: tuple[Pod, ...], memory_mib: float) -> bool:
    """At each arrival; in between nothing is added."""
    for pod in chosen:
        there = [other for other in chosen if other.at <= pod.at < other.until]
        if case.setting.whole and len(there) > 1:
            return False
        if sum(case.models[other.model].memory_mib for other in there) > memory_mib:
            return False
    return True


def _tokens(world: World, chosen: tuple[Pod, ...], kind: int) -> float:
    """What a card serves of these pods until the end."""
    end = world.case.end
    moments = sorted({min(moment, end) for pod in chosen for moment in (pod.at, pod.until)})
    total = 0.0
    for start, stop in pairwise(moments):
        asked = [world.asks(pod, kind) for pod in chosen if pod.at <= start < pod.until]
        rate = served(math.fsum(demand for demand, _ in asked), math.fsum(share for _, share in asked))
        total += rate * (stop - start)
    return total
