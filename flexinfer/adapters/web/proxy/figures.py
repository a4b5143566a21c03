"""Metrics of the proxy. Model labels are names from the routing table, never from a request."""

from flexinfer.adapters.web.proxy.upstream import WHYS
from flexinfer.telemetry import metrics

REQUESTS = metrics.counter(
    "flexinfer_proxy_requests_total", "Requests answered, by model and status.", ("model", "code")
)
REFUSED = metrics.counter("flexinfer_proxy_refused_total", "Requests the proxy answered with an error.", ("code",))
RETRIES = metrics.counter("flexinfer_proxy_retries_total", "Attempts on another replica.", ("model", "why"))
EJECTIONS = metrics.counter("flexinfer_proxy_ejections_total", "Replicas left alone for a while.", ("model",))
BROKEN = metrics.counter("flexinfer_proxy_broken_total", "Answers that broke after their first byte.", ("model",))
CANCELLED = metrics.counter("flexinfer_proxy_cancelled_total", "Requests whose client left.", ("model",))
TOKENS = metrics.counter("flexinfer_proxy_tokens_total", "Completion tokens relayed.", ("model",))
DURATION = metrics.LoopHistogram(
    "flexinfer_proxy_request_duration_seconds", "From the request's head to the end of its answer.", ("model",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)  # fmt: skip
FIRST_BYTE = metrics.LoopHistogram(
    "flexinfer_proxy_first_byte_seconds", "From the request's head to the engine's first byte.", ("model",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)  # fmt: skip
KEY_FAILURES = metrics.counter("flexinfer_proxy_key_file_failures_total", "Times the API key file was unreadable.")
LEFT_OUT = metrics.gauge("flexinfer_proxy_access_left_out", "Requests since the last line of the access log.")
OUTSTANDING = metrics.gauge("flexinfer_proxy_outstanding_requests", "Requests at engines now.", ("model",))
WAITING = metrics.gauge("flexinfer_proxy_waiting_requests", "Requests waiting for a model to start.", ("model",))
CLIENTS = metrics.gauge("flexinfer_proxy_client_connections", "Open client connections.")
ENGINES = metrics.gauge("flexinfer_proxy_engine_connections", "Open engine connections.")


class ModelFigures:
    """The figures of one model, counted in plain numbers and handed over when somebody looks."""

    __slots__ = ("_told", "codes", "duration", "first_byte", "model", "tokens")

    def __init__(self, model: str) -> None:
        self.model = model
        self.duration = DURATION.labels(model)
        self.first_byte = FIRST_BYTE.labels(model)
        self.tokens = 0
        self.codes: dict[int, int] = {}
        self._told: dict[int, int] = {}  # code 0 stands for tokens

    def tell(self) -> None:
        """Bring the counters up to date."""
        for code, count in self.codes.items():
            REQUESTS.labels(self.model, str(code)).inc(count - self._told.get(code, 0))
            self._told[code] = count
        TOKENS.labels(self.model).inc(max(0, self.tokens - self._told.get(0, 0)))
        self._told[0] = self.tokens

    def forget(self) -> None:
        """The model is gone: so are its series."""
        for code in self._told:
            metrics.forget(REQUESTS, self.model, str(code))
        for metric in (DURATION, FIRST_BYTE, TOKENS, BROKEN, CANCELLED, EJECTIONS, OUTSTANDING, WAITING):
            metrics.forget(metric, self.model)
        for why in WHYS:
            metrics.forget(RETRIES, self.model, why)
