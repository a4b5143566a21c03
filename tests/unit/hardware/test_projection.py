"""Labels and annotations: valid values, nothing unknown, patches only when they are worth it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.events import CachedModel, Cpu
from flexinfer.contracts.labels import NODE_ANNOTATIONS, NODE_LABELS
from flexinfer.core.hardware.findings import Findings, Live, Unit
from flexinfer.core.hardware.inventory import take
from flexinfer.core.hardware.projection import (
    Figures,
    annotation_changes,
    annotations_of,
    cache_labels,
    changes,
    clean_value,
    figures_of,
    label_changes,
    labels_of,
    moved,
    vram_label,
)

P = "flexinfer.ai/"


def unit(at: int = 0, **fields: object) -> Unit:
    values: dict[str, object] = {
        "vendor": "NVIDIA", "index": at, "uuid": f"GPU-{at}", "source": "nvml", "product": "NVIDIA L4 (PCIe) +",
        "arch": "sm_89", "memory_mib": 23034, "memory_type": "dedicated",
    }  # fmt: skip
    return Unit(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mib", "kind", "label"),
    [(24564, "dedicated", "24Gi"), (23034, "dedicated", "22Gi"), (81559, "dedicated", "80Gi"),
     (143771, "dedicated", "140Gi"), (6083, "dedicated", "6Gi"), (62841, "unified", "61Gi"),
     (512, "dedicated", None), (1000, "unified", None), (0, "dedicated", None), (None, None, None)],
)  # fmt: skip
def test_memory_is_the_nearest_gibibyte_and_unified_the_one_below(mib: object, kind: object, label: object) -> None:
    assert vram_label(unit(memory_mib=mib, memory_type=kind)) == label


@given(st.text())
def test_every_label_value_is_valid(product: str) -> None:
    labels = labels_of(take([Findings("NVIDIA", (unit(product=product),))], Cpu()), P)

    assert all(re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value) for value in labels.values())
    assert {key.removeprefix(P) for key in labels} <= set(NODE_LABELS)


def test_the_pair_of_labels_may_come_from_two_devices() -> None:
    strong, large = unit(0, arch="sm_120", memory_mib=12288), unit(1, arch="sm_70", memory_mib=32768)

    labels = labels_of(take([Findings("NVIDIA", (strong, large))], Cpu()), "")

    assert (labels["gpu.arch"], labels["gpu.vram"], labels["gpu.int4"]) == ("sm_120", "32Gi", "true")
    assert labels["gpu.mixed"] == "true"


@given(st.permutations([unit(at, pci=f"0000:{at}0:00.0", product=f"p{at}") for at in range(5)]))
def test_the_answer_does_not_depend_on_the_order_of_enumeration(units: list[Unit]) -> None:
    labels = labels_of(take([Findings("NVIDIA", tuple(units))], Cpu()), "")

    assert labels["gpu.product"] == "p0"


def test_utilisation_is_the_mean_of_what_is_known_and_shared_memory_counts_once() -> None:
    parts = [unit(at, pool="amd", pool_free_mib=1000, live=Live(memory_free_mib=400)) for at in range(3)]
    whole = unit(9, live=Live(util_percent=30.0, memory_free_mib=500))

    found = figures_of([*parts, whole, unit(10, live=Live(util_percent=60.0))], None)

    assert found == Figures(45.0, 1500, None)
    assert figures_of([unit()], 0.5) == Figures(None, None, 0.5)


def test_what_is_unknown_is_left_out() -> None:
    assert annotations_of(Figures(), (), P) == {}
    assert annotations_of(Figures(12.344, 5, 0.12344), (), P) == {
        P + "gpu.util": "12.34", P + "gpu-free-memory": "5", P + "kv-cache-usage": "0.1234",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "now", "age", "worth"),
    [
        (Figures(10, 1000, 0.1), Figures(14.9, 1019, 0.149), 60, False),
        (Figures(10, 1000, 0.1), Figures(15, 1000, 0.1), 60, True),
        (Figures(10, 1000, 0.1), Figures(10, 979, 0.1), 60, True),
        (Figures(10, 1000, 0.1), Figures(10, 1000, 0.15), 60, True),
        (Figures(10, 1000, None), Figures(10, 1000, 0.0), 60, True),
        (Figures(10, None, None), Figures(None, None, None), 60, True),
        (Figures(10, 1000, 0.1), Figures(11, 1000, 0.1), 300, True),
        (Figures(10, 1000, 0.1), Figures(10, 1000, 0.1), 900, False),
        (Figures(), Figures(), 900, False),
    ],
)
def test_annotations_are_patched_when_they_moved(told: Figures, now: Figures, age: float, worth: bool) -> None:
    assert moved(told, now, age) is worth


def test_only_our_own_stale_keys_are_removed() -> None:
    current = {
        P + "gpu.vram": "24Gi", P + "gpu.arch": "sm_89", P + "cost": "3", P + "enabled": "false", P + "theirs": "1",
        "other/gpu.vram": "1",
    }  # fmt: skip

    assert label_changes(current, {P + "gpu.arch": "sm_90"}, {}, P) == {P + "gpu.vram": None, P + "gpu.arch": "sm_90"}
    assert annotation_changes(current, {}, P) == {}


def test_scraping_is_enabled_where_nobody_decided() -> None:
    assert label_changes({}, {}, {}, P) == {P + "enabled": "true"}
    assert label_changes({P + "enabled": "false"}, {}, {}, P) == {}


def test_models_in_the_cache_are_labels_that_come_and_go_with_them() -> None:
    here = [CachedModel(entry=name, source="hf://o/r", bytes=1) for name in ("o-r-0123456789ab", "lost+found")]
    on = {P + "enabled": "true", P + "cached.ffffffffffff": "true", P + "cached.0123456789ab": "true"}

    assert cache_labels(here, P) == {P + "cached.0123456789ab": "true"}
    assert label_changes(on, {}, cache_labels(here, P), P) == {P + "cached.ffffffffffff": None}
    assert label_changes(on, {}, None, P) == {}


@given(st.dictionaries(st.sampled_from([P + n for n in (*NODE_LABELS, "x")]), st.sampled_from("ab")),
       st.dictionaries(st.sampled_from([P + n for n in NODE_LABELS]), st.sampled_from("ab")))  # fmt: skip
def test_a_patch_brings_the_object_to_what_is_wanted(current: dict[str, str], wanted: dict[str, str]) -> None:
    after = {**current, **changes(current, wanted, NODE_LABELS, P)}
    after = {key: value for key, value in after.items() if value is not None}

    assert changes(after, wanted, NODE_LABELS, P) == {}
    assert {key: value for key, value in after.items() if key in wanted or key != P + "x"} == wanted
    assert after.get(P + "x") == current.get(P + "x")


def test_our_keys_are_on_the_closed_list() -> None:
    assert set(NODE_ANNOTATIONS) == {"gpu.util", "gpu-free-memory", "kv-cache-usage", "gpu-devices"}
    assert clean_value("gfx90a:sramecc+:xnack-") == "gfx90a-sramecc-xnack"
