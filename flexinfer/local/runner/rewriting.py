"""From texts written for a container to texts that hold for a plain process of this machine.

Without root there is no mount namespace and no network namespace: a mounted path is another directory here, and the
pod's own address is one of 127.0.0.0/8 beside everybody else's. So arguments and values of variables are rewritten:
mounted paths to the real ones, "every address" (``0.0.0.0``, ``::``) to the pod's. A program that builds such a path
by itself, or listens everywhere by default, is not helped by this.
"""

import re
from collections.abc import Mapping

_EVERYWHERE = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d.]|/\d)")
# A path starts the text, follows a separator, or a file:// scheme; and ends at a separator or with the text.
_BEFORE = r"(^|file://|[=:,;\"'()@\s])"
_AFTER = r"(?=$|[/:,;\"'()\s])"


def expand(text: str, values: Mapping[str, str]) -> str:
    """Kubernetes' ``$(NAME)`` expansion: ``$$`` stands for ``$``, unknown names stay as written.

    >>> expand("$(A) $$(A) $(B) $A", {"A": "1"})
    '1 $(A) $(B) $A'
    """

    def one(found: re.Match[str]) -> str:
        if found.group(0) == "$$":
            return "$"
        return values.get(found.group(1), found.group(0))

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


class Rewriter:
    """Rewrites texts of one container. ``paths``: path in the container → path here. ``address``: None on the host."""

    def __init__(self, paths: Mapping[str, str], address: str | None) -> None:
        self._paths = {_clean(inside): outside for inside, outside in paths.items() if _clean(inside) != "/"}
        self._address = address
        # The longest first, all in one pass: a nested mount wins, and what was replaced is not replaced again.
        ordered = sorted((path for path in self._paths), key=len, reverse=True)
        self._pattern = (
            re.compile(_BEFORE + "(" + "|".join(map(re.escape, ordered)) + ")" + _AFTER) if ordered else None
        )

    def __call__(self, text: str) -> str:
        """The text for this machine."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda found: found.group(1) + self._paths[found.group(2)], text)
        if self._address is None:
            return text
        return self._address if text == "::" else _EVERYWHERE.sub(self._address, text)


def _clean(path: str) -> str:
    return "/" + path.strip("/")
