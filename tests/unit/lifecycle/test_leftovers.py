"""After an uninstall: which keys go from nodes, and what stays people's; how models are let go of."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.labels import FINALIZER, NODE_ANNOTATIONS, NODE_LABELS
from flexinfer.core.lifecycle.leftovers import model_patch, node_patch

PREFIX = "flexinfer.ai/"
LABELS = (*NODE_LABELS, "cached.0123456789ab")
OURS = {*LABELS, *NODE_ANNOTATIONS}
KEYS = st.sampled_from(sorted({PREFIX + name for name in OURS} | {
    f"{PREFIX}cost", f"{PREFIX}enabled", f"{PREFIX}virtual", f"{PREFIX}gpu.vendor.mine", "gpu.vendor",
    "other.example/gpu.vendor", "kubernetes.io/hostname",
}))  # fmt: skip
MAPS = st.dictionaries(KEYS, st.text(max_size=3), max_size=12)


def merged(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """JSON merge patch."""
    found = dict(obj)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


def others(found: dict[str, str], ours: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in found.items() if key not in {PREFIX + name for name in ours}}


@given(labels=MAPS, annotations=MAPS)
def test_exactly_the_agents_keys_go(labels: dict[str, str], annotations: dict[str, str]) -> None:
    node = {"metadata": {"name": "n", "labels": labels, "annotations": annotations}}

    after = merged(node, node_patch(node, PREFIX) or {})["metadata"]

    assert after["labels"] == others(labels, LABELS)
    assert after["annotations"] == others(annotations, NODE_ANNOTATIONS)
    assert node_patch({"metadata": after}, PREFIX) is None


def test_what_people_set_stays() -> None:
    node = {"metadata": {"labels": {"flexinfer.ai/enabled": "true"}, "annotations": {"flexinfer.ai/cost": "1.2"}}}

    assert node_patch(node, PREFIX) is None


def test_another_prefix_is_that_of_another_installation() -> None:
    node = {"metadata": {"labels": {"flexinfer.ai/gpu.count": "1", "mine/gpu.count": "2"}}}

    assert node_patch(node, "mine/") == {"metadata": {"labels": {"mine/gpu.count": None}}}


def test_a_model_is_let_go_of_unless_it_changed_meanwhile() -> None:
    obj = {"metadata": {"name": "m", "resourceVersion": "7", "finalizers": ["other/one", FINALIZER]}}

    assert model_patch(obj) == {"metadata": {"finalizers": ["other/one"], "resourceVersion": "7"}}
    assert model_patch({"metadata": {"finalizers": ["other/one"]}}) is None
    assert model_patch({"metadata": {}}) is None
