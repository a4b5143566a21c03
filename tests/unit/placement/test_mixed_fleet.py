"""Placement is good, not only fast: one fast card to two slow ones, room for every pod on a fast one."""

import random

import pytest

SPEED = {"4090": 58.0, "3090": 10.0}


@pytest.mark.parametrize("load", [0.0, 30.0, 60.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_mixed_fleet_gives_nearly_what_it_can(fleet, pod, asking, load, seed):
    chance = random.Random(seed)
    kinds = {f"fast-{n}": "4090" for n in range(6)} | {f"slow-{n}": "3090" for n in range(12)}
    names = list(kinds)
    chance.shuffle(names)
    busy = {name: chance.uniform(0, load) for name in names}
    for name in names:
        fleet.node(name, kinds[name], util=busy[name])
    for kind, speed in SPEED.items():
        fleet.result("w", kind, speed)
    desk = asking(fleet)

    def given(node):
        return SPEED[kinds[node]] * (1 - busy[node] / 100)

    placed = []
    for number in range(6):
        asker = pod(f"p{number}", key="w", vram="9000")
        scores = dict(desk.prioritize(asker, desk.filter(asker, names).passed))
        best = max(scores.values())
        placed.append(chance.choice([name for name, score in scores.items() if score == best]))
        fleet.bind(placed[-1], asker)

    total = sum(map(given, placed))
    round_robin = sum(map(given, names)) / len(names) * len(placed)
    least_loaded = sum(map(given, sorted(names, key=lambda name: busy[name])[: len(placed)]))
    assert len(set(placed)) == len(placed)
    assert total >= 1.9 * round_robin
    assert total >= least_loaded
