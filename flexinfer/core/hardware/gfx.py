"""AMD architecture names: what tools call them, what they are, how they rank, what they can do.

Sources: the LLVM AMDGPU processor table, KFD's ``gfx_target_version``, and tool output of ROCm 5 to 7.
"""

import re


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _names(
    "gfx803 gfx900 gfx902 gfx904 gfx906 gfx908 gfx909 gfx90a gfx90c gfx940 gfx941 gfx942 gfx950 "
    "gfx1010 gfx1011 gfx1012 gfx1013 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036 "
    "gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 gfx1200 gfx1201 gfx1250"
)

# Graphics inside a processor, sharing its memory. MI300A (gfx942) is an APU too, but one with its own HBM.
INTEGRATED = _names("gfx902 gfx909 gfx90c gfx1013 gfx1033 gfx1035 gfx1036 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153")
# Those of them that serve models when they are all a node has and enough memory is theirs.
SERVING = _names("gfx1103 gfx1150 gfx1151 gfx1152 gfx1153")

# Targets for which LLVM selects an INT4 dot product (v_dot8...). Not "major >= 9": gfx900 and gfx1010 have none.
_DOT8 = _names(
    "gfx906 gfx908 gfx90a gfx940 gfx941 gfx942 gfx950 gfx1011 gfx1012 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 "
    "gfx1036 gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 gfx1200 gfx1201 gfx1250"
)

# PCI device id of chips whose id settles the architecture; the last resort when no driver interface tells it.
_CHIPS = {
    "gfx803": "67df 67ef 6fdf 7300",
    "gfx900": "6860 6861 6862 6863 6864 6867 6868 686c 687f",
    "gfx902": "15dd",
    "gfx904": "69af 69a0",
    "gfx906": "66a0 66a1 66a2 66a3 66a7 66af",
    "gfx908": "7388 738c 738e 7390",
    "gfx909": "15d8",
    "gfx90a": "7408 740c 740f 7410",
    "gfx90c": "1636 1638 164c 15e7",
    "gfx942": "74a0 74a1 74a2 74a5 74a8 74a9 74b5 74b6 74b9 74bd",
    "gfx950": "75a0 75a3 75b0 75b3",
    "gfx1010": "7310 7312 731a 731b 731e 731f",
    "gfx1012": "7340 7341 7347 734f",
    "gfx1030": "73a1 73a2 73a3 73a5 73ab 73ae 73af 73bf",
    "gfx1031": "73d8 73de 73df",
    "gfx1032": "73e0 73e1 73e3 73ef 73ff",
    "gfx1033": "163f 1435",
    "gfx1034": "7421 7422 7423 7424 743f",
    "gfx1035": "1681",
    "gfx1036": "164e 13c0 1506",
    "gfx1100": "7448 7449 744a 744b 744c 745e",
    "gfx1101": "7460 7461 7470 747e",
    "gfx1102": "7480 7481 7483 7489 7499",
    "gfx1103": "15bf 15c8 1900 1901",
    "gfx1150": "150e",
    "gfx1151": "1586",
    "gfx1152": "1114",
    "gfx1200": "7590",
    "gfx1201": "7550 7551",
}
_ARCH_OF_CHIP = {chip: arch for arch, chips in _CHIPS.items() for chip in chips.split()}


def canonical(text: str | None) -> str | None:
    """The LLVM name of what a tool printed, or None unless it is a known one.

    Strips the triple and the feature suffix; undoes the decimal forms of rocm-smi 6.1 to 6.3 (``gfx9010`` is gfx90a,
    ``gfx11000`` is gfx1100). Unknown names (``gfx2332`` from a mixed amdsmi, ``gfx11-generic``) are refused.

    >>> canonical("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"), canonical("gfx9010"), canonical("gfx44c")
    ('gfx90a', 'gfx90a', None)
    """
    name = (text or "").strip().lower().removeprefix("amdgcn-amd-amdhsa--").partition(":")[0]
    if name in KNOWN:
        return name
    digits = name.removeprefix("gfx")
    if digits == name or not re.fullmatch(r"[0-9]{4,5}", digits):
        return None
    if len(digits) == 5:
        name = f"gfx{digits[:2]}{int(digits[2]):x}{int(digits[3:]):x}"
    elif digits.startswith("90"):
        name = f"gfx90{int(digits[2:]):x}"
    return name if name in KNOWN else None


def from_kfd(version: int | None) -> str | None:
    """KFD's ``gfx_target_version`` (90010 is gfx90a), or None for a processor node (0) or an unknown target."""
    if not version or version < 0:
        return None
    name = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return name if name in KNOWN else None


def from_chip(device_id: str | None) -> str | None:
    """Architecture of a PCI device id such as ``73bf``, where the id alone settles it."""
    return _ARCH_OF_CHIP.get((device_id or "").lower().removeprefix("0x"))


def order(arch: str) -> tuple[int, int, int]:
    """Rank of a known name: (major, minor, stepping), the last two characters being hexadecimal digits."""
    digits = arch.removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16), int(digits[-1], 16)


def int4(arch: str) -> bool:
    """Whether 4-bit weights run on its INT4 dot product."""
    return arch in _DOT8
