"""Names of architectures: canonical form, rank, INT4."""

import pytest

from flexinfer.core.hardware import cuda, gfx


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("gfx90a", "gfx90a"), ("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", "gfx90a"), ("gfx9010", "gfx90a"),
        ("gfx9006", "gfx906"), ("gfx9012", "gfx90c"), ("gfx11000", "gfx1100"), ("gfx10306", "gfx1036"),
        ("GFX1151", "gfx1151"), ("gfx11501", "gfx1151"), ("gfx11-generic", None),
        ("gfx9-4-generic", None), ("gfx2332", None), ("gfx44c", None), ("gfx2314", None), ("gfx4352", None),
        ("gfx000", None), ("", None), (None, None), ("90a", None),
    ],
)  # fmt: skip
def test_a_gfx_name_is_a_known_one_or_none(told: str | None, name: str | None) -> None:
    assert gfx.canonical(told) == name


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (100306, "gfx1036"), (110000, "gfx1100"),
     (110501, "gfx1151"), (120001, "gfx1201"), (90012, "gfx90c"), (0, None), (None, None), (123456, None)],
)  # fmt: skip
def test_kfd_writes_decimal(version: int | None, name: str | None) -> None:
    assert gfx.from_kfd(version) == name


def test_rank_is_numeric_with_hexadecimal_stepping() -> None:
    told = ["gfx1201", "gfx908", "gfx1100", "gfx90a", "gfx942", "gfx1036", "gfx1030"]

    assert sorted(told, key=gfx.order) == ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1036", "gfx1100", "gfx1201"]
    assert sorted(["sm_120", "sm_90", "sm_89"], key=cuda.order) == ["sm_89", "sm_90", "sm_120"]


@pytest.mark.parametrize(
    ("arch", "able"),
    [("gfx803", False), ("gfx900", False), ("gfx90c", False), ("gfx1010", False), ("gfx1013", False),
     ("gfx906", True), ("gfx908", True), ("gfx90a", True), ("gfx942", True), ("gfx1011", True), ("gfx1030", True),
     ("gfx1100", True), ("gfx1201", True), ("gfx1250", True)],
)  # fmt: skip
def test_int4_on_amd_is_the_dot_product_table(arch: str, able: bool) -> None:
    assert gfx.int4(arch) is able


@pytest.mark.parametrize(
    ("capability", "name", "able"),
    [("5.2", "sm_52", False), ("7.0", "sm_70", False), ("7.2", "sm_72", False), ("7.5", "sm_75", True),
     ("8.9", "sm_89", True), ("9.0", "sm_90", True), ("10.3", "sm_103", True), ("12.1", "sm_121", True),
     ("10.1", "sm_110", True)],
)  # fmt: skip
def test_compute_capability(capability: str, name: str, able: bool) -> None:
    assert cuda.sm(capability) == name
    assert cuda.int4(name) is able


@pytest.mark.parametrize("told", ["[N/A]", "", None, "8", "8.10", "0.0", "sm_89", "-1.0"])
def test_what_is_no_compute_capability(told: str | None) -> None:
    assert cuda.sm(told) is None


def test_every_chip_of_the_table_is_a_known_architecture() -> None:
    assert {gfx.from_chip(chip) for chip in gfx._ARCH_OF_CHIP} <= gfx.KNOWN
    assert gfx.INTEGRATED <= gfx.KNOWN
    assert gfx.SERVING <= gfx.INTEGRATED
