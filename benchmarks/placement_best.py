"""Is placement as good as it can be? Whole fleets, the real extender against other policies and the offline optimum.

Random mixed fleets of three vendors (5 to 500 nodes; speeds that follow bandwidth and are skewed by model and card; a
quarter of model and card pairs unmeasured, one model in twenty wholly; prices on some) get seeded sequences of pods
that come alone and in bursts and leave again, or stay. Pods ask for a whole device or share one. What counts is the
tokens/s the whole fleet serves over the time of the case (placement_cases.py has the formula); a refused pod serves
nothing. The price of a node does not count, so what the cost term gives up shows as a loss.

Policies (placement_policies.py): the extender with its default weights; VRAM fit, round robin, least loaded; several
that know the measured speeds; two that also know unmeasured speeds and what each pod will ask for, as no scheduler can.
For each case every policy gets its share of the best policy in that case; figures are means over the cases of a family.
The best online policy of a family is the one with the highest mean; the goal is within 5 % of the best that knows no
more than a scheduler may.

On small cases (placement_offline.py) the share is of the exact optimum of one who knows all that comes. Under "if" the
extender is run again with one thing changed, to see what its losses are made of.

    python benchmarks/placement_best.py [--quick] [--output FOLDER]

writes placement_best.json, placement_best.svg and placement_offline.svg. Same seeds, same figures on every machine.
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from placement_cases import Case, Setting, make_case
from placement_offline import best_possible
from placement_policies import BLIND, CLAIRVOYANT, INFORMED, Extender, Policy, policies, run
from svg_charts import dots

from flexinfer.core.placement.scoring import Weights

GOAL = 0.95
SEEDS = {5: 40, 50: 8, 500: 2}
QUICK_SEEDS = {5: 8, 50: 1}
LOADS = (0.5, 0.9, 1.3)
MOST_PODS = 4000
SMALL = (
    Setting("whole devices, 5 nodes", 5, whole=True, load=0.9, pods=14),
    Setting("whole devices, 5 nodes, nobody leaves", 5, whole=True, load=1.5, stays=True, pods=14),
    Setting("shared, 5 nodes", 5, whole=False, load=0.9, pods=12),
    Setting("shared, 5 nodes, nobody leaves", 5, whole=False, load=1.3, stays=True, pods=12),
)
SMALL_SEEDS = 40
ONLY = ("round robin", *BLIND, *INFORMED)  # know no more than a scheduler may
IF = {
    "utilisation weighs 0.7": Weights(util=0.7),
    "KV use weighs 0": Weights(kv_cache=0.0),
    "cost weighs 0": Weights(cost=0.0),
    "utilisation 0.7, KV use 0": Weights(util=0.7, kv_cache=0.0),
}
BY_SUM = "the best sum always gets the pod"


def settings(sizes: Sequence[int]) -> list[Setting]:
    found = []
    for whole in (True, False):
        kind = "whole devices" if whole else "shared"
        for nodes in sizes:
            found += [
                Setting(f"{kind}, {nodes} nodes, load {load:g}", nodes, whole=whole, load=load, pods=MOST_PODS)
                for load in LOADS
            ]
        found.append(Setting(f"{kind}, {sizes[-1]} nodes, nobody leaves", sizes[-1], whole, load=0.9, stays=True))
    return found


def changed(case: Case) -> dict[str, Policy]:
    """The extender with one thing changed."""
    found: dict[str, Policy] = {name: Extender(case, weights) for name, weights in IF.items()}
    return {**found, BY_SUM: Extender(case, by_sum=True)}


def rates(case: Case, which: Mapping[str, Policy]) -> tuple[dict[str, float], dict[str, float]]:
    """``(tokens/s, share of pods refused)`` by policy."""
    worlds = {name: run(case, policy) for name, policy in which.items()}
    return (
        {name: float(world.tokens) / case.end for name, world in worlds.items()},
        {name: world.refused / len(case.pods) for name, world in worlds.items()},
    )


def family(setting: Setting, seeds: int) -> dict[str, Any]:
    """Shares of the best of each case, means over the cases."""
    shares: list[dict[str, float]] = []
    lost: list[dict[str, float]] = []
    devices, pods = [], []
    for seed in range(seeds):
        case = make_case(setting, seed)
        devices.append(sum(node.count for node in case.nodes))
        pods.append(len(case.pods))
        others = changed(case) if setting.nodes < max(SEEDS) else {}
        found, refused = rates(case, {**policies(case), **others})
        top = max(found[name] for name in found if name not in others)
        shares.append({name: value / top for name, value in found.items()})
        lost.append(refused)
    means = {name: statistics.fmean(share[name] for share in shares) for name in shares[0]}
    best = max(ONLY, key=lambda name: means[name])
    knowing = max(CLAIRVOYANT, key=lambda name: means[name])
    plain = [name for name in means if name not in IF and name != BY_SUM]
    ratios = sorted(share["extender"] / share[best] for share in shares)
    return {
        "family": setting.name, "nodes": setting.nodes, "whole": setting.whole, "load": setting.load,
        "cases": seeds, "devices": round(statistics.fmean(devices)), "pods": round(statistics.fmean(pods)),
        "share_of_best": {name: round(means[name], 4) for name in plain},
        "refused": {name: round(statistics.fmean(one[name] for one in lost), 4) for name in plain},
        "best_online": best,
        "extender_to_best_online": round(means["extender"] / means[best], 4),
        "worst_case_to_best_online": round(ratios[0], 4),
        "best_clairvoyant": knowing,
        "extender_to_clairvoyant": round(means["extender"] / means[knowing], 4),
        "if": {name: round(means[name] / means[best], 4) for name in means if name not in plain},
    }  # fmt: skip


def offline(setting: Setting, seeds: int) -> dict[str, Any]:
    """Shares of the optimum, means over the cases."""
    shares: list[dict[str, float]] = []
    for seed in range(seeds):
        case = make_case(setting, seed)
        most = best_possible(case)
        found, _ = rates(case, policies(case))
        if most > 0:
            shares.append({name: value / most for name, value in found.items()})
    return {
        "family": setting.name, "cases": len(shares),
        "share_of_optimum": {name: round(statistics.fmean(one[name] for one in shares), 4) for name in shares[0]},
        "extender_worst": round(min(one["extender"] for one in shares), 4),
    }  # fmt: skip


def measure(*, quick: bool) -> dict[str, Any]:
    seeds = QUICK_SEEDS if quick else SEEDS
    families = []
    for setting in settings(tuple(seeds)):
        families.append(family(setting, seeds[setting.nodes]))
        row = families[-1]
        print(f"{row['family']}: extender {row['extender_to_best_online']:.3f} of {row['best_online']}", flush=True)
    small = [offline(setting, QUICK_SEEDS[5] if quick else SMALL_SEEDS) for setting in SMALL]
    return {
        "method": (__doc__ or "").strip(), "goal": GOAL, "families": families, "offline": small,
        "summary": {
            kind: summary([row for row in families if row["whole"] is whole])
            for kind, whole in (("whole devices", True), ("shared", False))
        },
    }  # fmt: skip


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over families; ``best_online`` is the one policy that is best over all of them."""
    names = rows[0]["share_of_best"]
    means = {name: statistics.fmean(row["share_of_best"][name] for row in rows) for name in names}
    best, knowing = max(ONLY, key=lambda name: means[name]), max(CLAIRVOYANT, key=lambda name: means[name])
    ratios = {row["family"]: row["extender_to_best_online"] for row in rows}
    return {
        "best_online": best,
        "extender_to_best_online": round(means["extender"] / means[best], 4),
        "best_clairvoyant": knowing,
        "extender_to_clairvoyant": round(means["extender"] / means[knowing], 4),
        "to_round_robin": round(means["extender"] / means["round robin"], 4),
        "to_least_loaded": round(means["extender"] / means["least loaded"], 4),
        "to_vram_fit": round(means["extender"] / means["VRAM fit"], 4),
        "families_within_goal": sum(ratio >= GOAL for ratio in ratios.values()),
        "families": len(rows),
        "worst_family": min(ratios, key=lambda name: ratios[name]),
        "worst_family_to_best_online": min(ratios.values()),
    }


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--quick", action="store_true", help="few cases, up to 50 nodes")
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found = measure(quick=options.quick)
    print(json.dumps({"summary": found["summary"], "offline": found["offline"]}, indent=1))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "placement_best.json").write_text(json.dumps(found, indent=1) + "\n")
        rows = [(row["family"], row["share_of_best"]) for row in found["families"]]
        (options.output / "placement_best.svg").write_text(dots("share of the best policy in each case", rows, GOAL))
        rows = [(row["family"], row["share_of_optimum"]) for row in found["offline"]]
        (options.output / "placement_offline.svg").write_text(dots("share of the offline optimum", rows, GOAL))


if __name__ == "__main__":
    main()
