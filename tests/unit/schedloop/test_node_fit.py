"""Node name, selector, affinity and cordon, as kube-scheduler's built-in filters read them."""

import pytest

from flexinfer.local.nodefit import CORDONED, WRONG_LABELS, WRONG_NAME, attraction, misfit
from flexinfer.local.schedloop import best

NODE = {"metadata": {"name": "n", "labels": {"gpu": "yes", "generation": "4"}}, "spec": {}}


def fit(spec, node=NODE):
    return misfit({"spec": spec}, node)


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def term(key, operator, *values, fields=False):
    return {"matchFields" if fields else "matchExpressions": [{"key": key, "operator": operator, "values": values}]}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, None),
        ({"nodeName": "n"}, None),
        ({"nodeName": "other"}, WRONG_NAME),
        ({"nodeSelector": {"gpu": "yes"}}, None),
        ({"nodeSelector": {"gpu": "no"}}, WRONG_LABELS),
        ({"nodeSelector": {"gpu": "yes", "absent": "x"}}, WRONG_LABELS),
        (affinity(), WRONG_LABELS),
        (affinity({}), WRONG_LABELS),
        (affinity(term("gpu", "In", "yes", "maybe")), None),
        (affinity(term("gpu", "In", "no")), WRONG_LABELS),
        (affinity(term("gpu", "NotIn", "no")), None),
        (affinity(term("absent", "NotIn", "no")), None),
        (affinity(term("gpu", "Exists")), None),
        (affinity(term("absent", "Exists")), WRONG_LABELS),
        (affinity(term("absent", "DoesNotExist")), None),
        (affinity(term("generation", "Gt", "3")), None),
        (affinity(term("generation", "Gt", "4")), WRONG_LABELS),
        (affinity(term("generation", "Lt", "5")), None),
        (affinity(term("gpu", "Gt", "3")), WRONG_LABELS),
        (affinity(term("gpu", "Near", "yes")), WRONG_LABELS),
        (affinity(term("gpu", "In", "no"), term("gpu", "Exists")), None),
        (affinity(term("metadata.name", "In", "n", fields=True)), None),
        (affinity(term("metadata.name", "In", "other", fields=True)), WRONG_LABELS),
    ],
)
def test_names_selectors_and_required_affinity(spec, reason):
    assert fit(spec) == reason


@pytest.mark.parametrize(
    ("tolerations", "reason"),
    [
        ([], CORDONED),
        ([{"operator": "Exists"}], None),
        ([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}], None),
        ([{"key": "node.kubernetes.io/unschedulable"}], None),
        ([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}], CORDONED),
        ([{"key": "other", "operator": "Exists"}], CORDONED),
    ],
)
def test_a_cordoned_node_takes_only_pods_that_tolerate_it(tolerations, reason):
    cordoned = NODE | {"spec": {"unschedulable": True}}

    assert fit({"tolerations": tolerations}, cordoned) == reason


def test_preferred_affinities_that_hold_are_summed() -> None:
    preferred = [
        {"weight": 100, "preference": term("generation", "Exists")},
        {"weight": 7, "preference": term("gpu", "In", "yes")},
        {"weight": 50, "preference": term("gpu", "In", "no")},
    ]
    wish = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}

    assert attraction({"spec": wish}, NODE) == 107
    assert attraction({}, NODE) == 0


def test_affinity_decides_between_equal_scores_only() -> None:
    names = ("a", "b", "c")

    assert best(names, {"a": 5, "b": 5, "c": 4}, {"b": 100, "c": 100}) == "b"
    assert best(names, {}, {}) == "a"
