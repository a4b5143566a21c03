"""Bytes of the Kubernetes API: error statuses, watch lines, patch content types."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from flexinfer.contracts.kubernetes import Object, Resource
from flexinfer.ports import (
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    KubeUnavailable,
    NotFound,
    PatchKind,
)

CONTENT_TYPES: Mapping[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

# An object is at most about 3 MB in etcd; a line beyond this is not a watch event but a fault.
MAX_LINE = 64 * 1024 * 1024

_ERRORS: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    413: Invalid,
    415: Invalid,
    422: Invalid,
}


def error_of(status: int, body: bytes | Object, retry_after: str | None = None) -> KubeError | KubeUnavailable:
    """The error for an HTTP status and its body, a Status object as a rule; any bytes are accepted."""
    content = _status(body) if isinstance(body, bytes) else body
    message = str(content.get("message") or "")
    reason = str(content.get("reason") or "")
    delay = _seconds(retry_after)
    if delay is None:
        details = content.get("details")
        delay = _seconds(details.get("retryAfterSeconds")) if isinstance(details, dict) else None
    if status == 429 or status >= 500:
        return KubeUnavailable(f"the API server answered {status} {reason}: {message}".rstrip(" :"), delay)
    return _ERRORS.get(status, KubeError)(status, reason or "Unknown", message, delay)


def _status(body: bytes) -> Object:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[:200].decode(errors="replace").strip()}
    return content if isinstance(content, dict) else {}


def _seconds(value: Any) -> float | None:
    """Retry-After in its seconds form; the date form is not used by API servers."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < 3600 else None


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Newline-separated lines of any length up to MAX_LINE, without the newline; an unfinished last one is dropped.

    Raises KubeUnavailable for a longer line.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            piece = chunk[start:end]
            line = b"".join((*parts, piece)) if parts else piece
            parts, size, start = [], 0, end + 1
            if line:
                yield line
        if start < len(chunk):
            parts.append(chunk[start:])
            size += len(chunk) - start
        if size > MAX_LINE:
            raise KubeUnavailable(f"a watch line is longer than {MAX_LINE >> 20} MiB")


def event_of(line: bytes) -> tuple[str, Object]:
    """(type, object) of one watch line.

    Raises the error an ERROR event stands for, and KubeError (reason MalformedWatch) for anything unreadable.
    """
    try:
        event = orjson.loads(line)
        kind, content = event["type"], event["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as err:
        raise KubeError(200, "MalformedWatch", f"unreadable watch line {line[:80]!r}") from err
    if not isinstance(kind, str) or not isinstance(content, dict):
        raise KubeError(200, "MalformedWatch", f"unreadable watch line {line[:80]!r}")
    if kind == "ERROR":
        code = content.get("code")
        raise error_of(code if isinstance(code, int) else 500, content)
    return kind, content


def typed(item: Object, resource: Resource) -> Object:
    """A list item with the apiVersion and kind that lists leave out."""
    return item if "kind" in item else {"apiVersion": resource.api_version, "kind": resource.kind, **item}
