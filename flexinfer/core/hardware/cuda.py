"""NVIDIA architectures: compute capability as ``sm_<major><minor>``, rank, INT4, integrated chips."""

import re

# Tegra and GB10: one memory for processor and accelerator. 10.1 is what older drivers call 11.0 (Thor).
UNIFIED = frozenset({"sm_53", "sm_62", "sm_72", "sm_87", "sm_110", "sm_121"})
_UNIFIED_NAMES = re.compile(r"\(nvgpu\)|\bTegra\b|\b(?:Xavier|Orin|Thor|GB10|N1X?)\b", re.IGNORECASE)

_JETSON = (
    (re.compile(r"thor|t264", re.IGNORECASE), "sm_110"),
    (re.compile(r"orin|tegra234", re.IGNORECASE), "sm_87"),
    (re.compile(r"xavier|tegra194", re.IGNORECASE), "sm_72"),
    (re.compile(r"tx2|tegra186", re.IGNORECASE), "sm_62"),
    (re.compile(r"tx1|jetson nano|tegra210", re.IGNORECASE), "sm_53"),
)


def sm(capability: str | None) -> str | None:
    """``8.9`` as ``sm_89``, or None for anything that is no compute capability.

    >>> sm("12.0"), sm("10.1"), sm("[N/A]")
    ('sm_120', 'sm_110', None)
    """
    match = re.fullmatch(r"\s*([1-9][0-9]?)\.([0-9])\s*", capability or "")
    if not match:
        return None
    name = f"sm_{int(match.group(1)) * 10 + int(match.group(2))}"
    return "sm_110" if name == "sm_101" else name


def order(arch: str) -> int:
    """Rank of ``sm_89``: 89."""
    return int(arch.removeprefix("sm_"))


def int4(arch: str) -> bool:
    """Whether 4-bit weights run on it: PTX has INT4 matrix instructions from sm_75 on, emulated from sm_90."""
    return order(arch) >= 75


def is_unified(arch: str | None, product: str | None) -> bool:
    """Whether the chip has no memory of its own."""
    return arch in UNIFIED or bool(_UNIFIED_NAMES.search(product or ""))


def jetson_arch(model: str) -> str | None:
    """Architecture of a device-tree model or compatible string."""
    return next((arch for pattern, arch in _JETSON if pattern.search(model)), None)
