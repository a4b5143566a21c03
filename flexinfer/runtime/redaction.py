"""Secrets out of Kubernetes objects before they are written anywhere: a tape is sent to others to be looked at."""

import re
from typing import Any

from flexinfer.contracts.kubernetes import SECRETS

GONE = "[redacted]"

_SECRET = re.compile(
    r"(?i)(?:^|[-_./])(?:token|secret|passw(?:or)?d|passphrase|credentials?|auth(?:orization)?|"
    r"(?:api|access|private|secret)[-_]?key)$"
)
_FLAG = re.compile(r"(--?[\w-]+)(=?)(.*)", re.DOTALL)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_DROPPED = frozenset({"kubectl.kubernetes.io/last-applied-configuration", "managedFields"})


def redact(found: Any, key: str = "") -> Any:
    """The same JSON value without secrets; parts without any are returned as they are.

    Gone are the data of Secrets, values of variables, flags and fields with telling names (token, password, api-key),
    user information in URLs, and the copies of whole objects that kubectl and server-side apply keep.
    """
    match found:
        case dict():
            return _mapping(found)
        case list() | tuple():
            parts = _arguments(found) if key in {"args", "command"} else [redact(part) for part in found]
            return found if all(a is b for a, b in zip(parts, found, strict=True)) else parts
        case str() if _SECRET.search(key) and found:
            return GONE
        case str() if "://" in found:
            clean = _USERINFO.sub("", found)
            return found if clean == found else clean
        case _:
            return found


def _mapping(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("kind") == SECRETS.kind:
        found = secret(found)
    variable = found.get("name") if isinstance(found.get("value"), str) else None
    parts = {
        name: GONE if name == "value" and isinstance(variable, str) and _SECRET.search(variable) else redact(part, name)
        for name, part in found.items()
        if name not in _DROPPED
    }
    same = len(parts) == len(found) and all(part is found[name] for name, part in parts.items())
    return found if same else parts


def secret(found: dict[str, Any]) -> dict[str, Any]:
    """A Secret with its names but without its values."""
    parts = [part for part in ("data", "stringData") if part in found]
    return found | {part: dict.fromkeys(found[part] or (), GONE) for part in parts}


def _arguments(words: list[Any] | tuple[Any, ...]) -> list[Any]:
    parts: list[Any] = []
    hidden = False
    for word in words:
        flag = _FLAG.fullmatch(word) if isinstance(word, str) else None
        telling = flag is not None and _SECRET.search(flag[1]) is not None
        if hidden and flag is None:
            parts.append(GONE)
        elif telling and flag is not None and flag[2]:
            parts.append(f"{flag[1]}={GONE}")
        else:
            parts.append(redact(word))
        hidden = telling and flag is not None and not flag[2]
    return parts
