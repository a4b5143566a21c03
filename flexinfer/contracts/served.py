"""One line of a proxy's access log as an event."""

from flexinfer.contracts.payload import Amount, Count, Name, Payload


class RequestServed(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.request.served.v1``: one answered request, at most a few per second and proxy.

    ``status`` 0: the client left before an answer. ``left_out`` requests ended since the last event without one.
    """

    proxy: Name
    request_id: Name
    method: str
    path: str
    status: Count
    model: str = ""  # <namespace>/<name>; empty: none was found
    endpoint: str = ""  # pod
    reason: str = ""  # X-FlexInfer-Reason, or the error's code
    duration_seconds: Amount = 0.0
    first_byte_seconds: Amount | None = None
    request_bytes: Count = 0
    answer_bytes: Count = 0
    completion_tokens: Count = 0
    left_out: Count = 0
