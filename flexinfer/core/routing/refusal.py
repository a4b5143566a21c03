"""Answers a proxy gives itself, in the shape OpenAI clients expect.

Body: ``{"error": {"message", "type", "param", "code"}}``. The official client maps the status to its exception
class and shows ``message``; ``code`` is for programs and labels our counters, so the codes are a closed set.
"""

from typing import Literal

import msgspec

Code = Literal[
    "invalid_path", "method_not_allowed", "invalid_json", "invalid_body", "model_missing", "invalid_model",
    "invalid_api_key", "model_not_found", "request_too_large", "headers_too_large", "malformed_request",
    "request_timeout", "engine_unreachable", "engine_failed", "engine_timeout", "queue_full", "activation_failed",
    "model_asleep", "no_endpoint", "cold_start_timeout", "not_ready", "cluster_unavailable",
    "too_many_connections", "overloaded",
]  # fmt: skip


class Refusal(Exception):
    """A request that is answered with an error. ``retry_after`` is in whole seconds."""

    def __init__(
        self, status: int, code: Code, message: str, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code: Code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def body(self) -> bytes:
        """The JSON document."""
        return msgspec.json.encode(
            {"error": {"message": self.message, "type": _kind(self.status), "param": self.param, "code": self.code}}
        )


def _kind(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"
