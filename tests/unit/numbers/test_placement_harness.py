"""What placement is compared on: the world is fair, nobody overfills a device, nobody beats the optimum."""

from dataclasses import replace
from itertools import product

import pytest
from placement_cases import CARDS, Case, Pod, Setting, World, make_case
from placement_offline import MOST_PODS, best_possible
from placement_policies import Extender, policies, run

WHOLE = Setting("whole, for a test", 6, whole=True, load=1.2, pods=40)
SHARED = Setting("shared, for a test", 6, whole=False, load=1.2, pods=60)
TINY = (
    Setting("tiny whole, for a test", 3, whole=True, load=1.5, pods=7),
    Setting("tiny shared, for a test", 3, whole=False, load=1.2, pods=7),
    Setting("tiny that stays, for a test", 3, whole=False, load=1.5, stays=True, pods=7),
)
HAIR = 1 + 1e-6


class Watching(World):
    """Looks at each change of a device; a node that cannot take its pod is a mistake of the policy."""

    def place(self, pod: Pod, node: int) -> bool:
        assert super().place(pod, node), f"pod {pod.number} does not fit on node {node}"
        return True

    def _change(self, pod: Pod, device: int, sign: int) -> None:
        super()._change(pod, device, sign)
        card = CARDS[self.case.nodes[int(self.owner[device])].card]
        assert -1e-6 <= self.free[device] <= card.memory_mib + 1e-6
        assert pod.vendor in {"", card.vendor}
        if self.case.setting.whole:
            assert self.pods[device] in {0, 1}


@pytest.mark.parametrize("setting", [WHOLE, SHARED])
@pytest.mark.parametrize("seed", range(3))
def test_no_policy_overfills_a_device(setting: Setting, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement_policies.World", Watching)
    case = make_case(setting, seed)
    for name, policy in policies(case).items():
        world = run(case, policy)
        assert len(world.placed) + world.refused == len(case.pods), name
        assert world.placed, name


@pytest.mark.parametrize("setting", TINY)
@pytest.mark.parametrize("seed", range(4))
def test_nobody_serves_more_than_the_offline_optimum(setting: Setting, seed: int) -> None:
    case = make_case(setting, seed)
    most = best_possible(case)
    for name, policy in policies(case).items():
        assert run(case, policy).tokens / case.end <= most * HAIR, name


class Fixed:
    """Every pod where it was told to go."""

    def __init__(self, nodes: tuple[int | None, ...]) -> None:
        self.nodes = nodes

    def choose(self, world: World, pod: Pod) -> int | None:
        return self.nodes[pod.number] if self.nodes[pod.number] in world.fitting(pod) else None

    def bound(self, world: World, pod: Pod, node: int) -> None: ...

    def ended(self, world: World, pod: Pod, node: int) -> None: ...


@pytest.mark.parametrize("setting", [replace(setting, nodes=3, pods=4) for setting in TINY])
def test_the_optimum_is_the_best_of_all_assignments(setting: Setting) -> None:
    case = make_case(setting, 1)
    case = replace(case, nodes=tuple(replace(node, count=1) for node in case.nodes))
    choices: tuple[int | None, ...] = (None, 0, 1, 2)
    every = (run(case, Fixed(nodes)).tokens / case.end for nodes in product(choices, repeat=len(case.pods)))
    assert best_possible(case) == pytest.approx(max(every), rel=1e-6)


def test_the_solver_refuses_what_is_too_large() -> None:
    case = make_case(replace(SHARED, pods=MOST_PODS + 1), 0)
    with pytest.raises(ValueError, match="too many"):
        best_possible(case)


@pytest.mark.parametrize("setting", [WHOLE, SHARED])
def test_what_is_served_is_what_the_running_pods_ask_for_or_less(setting: Setting) -> None:
    case = make_case(setting, 2)
    world = run(case, Extender(case))
    running = [pod for pod in case.pods if pod.number in world.placed and pod.until > case.end]
    asked = sum(world.asks(pod, int(world.kind[world.owner[world.placed[pod.number]]]))[0] for pod in running)
    assert 0 <= world.rate <= asked * HAIR + 1e-6
    assert world.demand.sum() == pytest.approx(asked, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("setting", [WHOLE, SHARED])
def test_the_same_case_has_the_same_figures(setting: Setting) -> None:
    def once() -> tuple[Case, float]:
        case = make_case(setting, 3)
        return case, run(case, Extender(case)).tokens

    assert once() == once()
