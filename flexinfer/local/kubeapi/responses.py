"""Answers: status code, body, headers."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from flexinfer.local.kubeapi.errors import ApiError, NoSuchPath
from flexinfer.local.kubeapi.objects import Json, encode

JSON = b"application/json"


@dataclass(slots=True)
class Response:
    """One complete answer."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    parts: AsyncIterator[bytes] | None = None  # instead of a body: what comes, as it comes


def answer(value: Any, status: int = 200, *, as_yaml: bool = False) -> Response:
    """JSON, or YAML on request."""
    if as_yaml:
        return Response(status, yaml.safe_dump(value, sort_keys=False).encode(), b"application/yaml")
    return Response(status, encode(value))


def failure(error: ApiError) -> Response:
    """The Status of an error."""
    if isinstance(error, NoSuchPath):
        return Response(404, b"404 page not found\n", b"text/plain; charset=utf-8")
    headers = ((b"retry-after", str(error.retry_after).encode()),) if error.retry_after else ()
    return Response(error.code, encode(error.status()), JSON, headers)


def success(details: Json) -> Json:
    """``Status: Success``, the answer to a finished DELETE."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def warn(response: Response, warnings: Sequence[str]) -> Response:
    """Add Warning headers (RFC 7234, code 299), which kubectl prints."""
    extra = tuple((b"warning", f'299 - "{_quoted(text)}"'.encode("latin-1", "replace")) for text in warnings)
    response.headers += extra
    return response


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
