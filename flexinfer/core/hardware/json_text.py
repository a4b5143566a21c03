"""JSON inside the output of tools that print warnings around it."""

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

_MOST = 1 << 22
_TRIES = 50
_decoder = JSONDecoder()


def documents(text: str) -> Iterator[Any]:
    """Every object or array that decodes, scanning for ``{`` and ``[``; text in between is skipped."""
    text = text[:_MOST]
    at, tries = 0, 0
    while tries < _TRIES:
        starts = [found for found in (text.find("{", at), text.find("[", at)) if found >= 0]
        if not starts:
            return
        at = min(starts)
        tries += 1
        try:
            value, end = _decoder.raw_decode(text, at)
        except RecursionError:
            return  # nested for its own sake; no tool of ours does that
        except (JSONDecodeError, ValueError):
            at += 1
            continue
        yield value
        at = end


def mapping(value: Any) -> dict[str, Any]:
    """``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def lowered(value: Any) -> dict[str, Any]:
    """A JSON object with its keys in lower case: ROCm's changed case between releases."""
    return {str(key).lower(): item for key, item in mapping(value).items()}
