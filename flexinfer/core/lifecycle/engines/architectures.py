"""Which GPU architectures the image of an engine has kernels for."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architectures:
    """``least``: the smallest compute capability, 75 for sm_75 (0: no bound); ``names``: the only ones (empty: all)."""

    least: int = 0
    names: frozenset[str] = frozenset()

    def includes(self, arch: str) -> bool:
        """Whether an architecture is among them; one that is written in another way is."""
        lower = arch.lower()
        found = re.fullmatch(r"sm_(\d+)[a-z]?", lower)
        if self.least and found:
            return int(found.group(1)) >= self.least
        return not self.names or not lower.startswith("gfx") or lower.partition(":")[0] in self.names

    @property
    def text(self) -> str:
        """For people."""
        return f"sm_{self.least} or newer" if self.least else ", ".join(sorted(self.names))


def names(text: str) -> frozenset[str]:
    """Names separated by blanks."""
    return frozenset(text.split())
