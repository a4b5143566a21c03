"""Failures as the API reports them: an exception that renders a ``metav1.Status``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flexinfer.local.kubeapi.objects import encode


class Named(Protocol):
    """What an error needs to know about a resource type."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error. ``reason`` is a metav1 cause type, ``message`` stands without the path."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ApiError(Exception):
    """Becomes the HTTP answer ``code`` with a Status body."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None, retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after

    def status(self) -> dict[str, Any]:
        """The ``metav1.Status`` of this failure."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        details = dict(self.details)
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        if details:
            body["details"] = details
        return body


def qualified(kind: Named) -> str:
    """``deployments.apps``, ``pods``: how messages name a resource."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _details(kind: Named, name: str) -> dict[str, Any]:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}


def not_found(kind: Named, name: str) -> ApiError:
    """404 for a missing object."""
    return ApiError(404, "NotFound", f'{qualified(kind)} "{name}" not found', details=_details(kind, name))


class NoSuchPath(ApiError):
    """404 for a URL that leads nowhere; the real server answers it in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def no_such_path() -> ApiError:
    """404 for a URL that leads nowhere."""
    return NoSuchPath()


def already_exists(kind: Named, name: str) -> ApiError:
    """409 on create."""
    return ApiError(409, "AlreadyExists", f'{qualified(kind)} "{name}" already exists', details=_details(kind, name))


def conflict(kind: Named, name: str, why: str) -> ApiError:
    """409 on a lost race or a failed precondition."""
    message = f'Operation cannot be fulfilled on {qualified(kind)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_details(kind, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def forbidden(kind: Named, name: str, why: str, cause: str = "") -> ApiError:
    """403; ``cause`` is a cause type such as NamespaceTerminating."""
    details = _details(kind, name)
    if cause:
        details["causes"] = [{"reason": cause, "message": why}]
    return ApiError(403, "Forbidden", f'{qualified(kind)} "{name}" is forbidden: {why}', details=details)


def method_not_allowed() -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported_media(message: str) -> ApiError:
    """415."""
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> ApiError:
    """413."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> ApiError:
    """410: list again."""
    return ApiError(410, "Expired", message)


def invalid(kind: Named, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with one cause per field, worded as the real server does."""
    title = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    texts = [str(cause) for cause in causes]
    listing = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _details(kind, name) | {
        "kind": kind.kind,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    return ApiError(422, "Invalid", f'{title} "{name}" is invalid: {listing}', details=details)


def required(field: str, why: str = "") -> Cause:
    """Cause for a missing value."""
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def wrong(field: str, value: Any, why: str) -> Cause:
    """Cause for a value that breaks a rule."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {show(value)}: {why}")


def not_allowed(field: str, why: str) -> Cause:
    """Cause for a change that may not be made."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def unsupported(field: str, value: Any, options: Sequence[Any]) -> Cause:
    """Cause for a value outside an enumeration."""
    listed = ", ".join(show(option) for option in options)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {show(value)}: supported values: {listed}")


def show(value: Any) -> str:
    """A value as Go's field errors print it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (dict, list)):
        return encode(value).decode()
    return str(value)
