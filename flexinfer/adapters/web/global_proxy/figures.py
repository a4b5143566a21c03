"""Metrics of the global proxy. Cluster labels are names from flags and headroom events, never from a request."""

from flexinfer.adapters.web.proxy.upstream import WHYS
from flexinfer.telemetry import metrics

REQUESTS = metrics.counter(
    "flexinfer_global_requests_total", "Requests answered, by cluster and status.", ("cluster", "code")
)
REFUSED = metrics.counter("flexinfer_global_refused_total", "Requests answered with an error of our own.", ("code",))
RETRIES = metrics.counter("flexinfer_global_retries_total", "Attempts on another cluster.", ("cluster", "why"))
BROKEN = metrics.counter("flexinfer_global_broken_total", "Answers that broke after their first byte.", ("cluster",))
CANCELLED = metrics.counter("flexinfer_global_cancelled_total", "Requests whose client left.", ("cluster",))
REJECTED = metrics.counter("flexinfer_global_rejected_events_total", "Headroom events that name no cluster or URL.")
CHECKS = metrics.counter("flexinfer_global_checks_total", "Active health checks.", ("cluster", "result"))
UP = metrics.gauge("flexinfer_global_cluster_up", "1 while the cluster is taken to be up.", ("cluster",))
OUTSTANDING = metrics.gauge("flexinfer_global_outstanding_requests", "Requests at clusters now.", ("cluster",))
FIRST_BYTE = metrics.histogram(
    "flexinfer_global_first_byte_seconds", "From the request's head to the cluster's first byte.", ("cluster",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)  # fmt: skip


def forget(cluster: str) -> None:
    """The cluster is gone: so are its series."""
    for metric in (BROKEN, CANCELLED, UP, OUTSTANDING, FIRST_BYTE):
        metrics.forget(metric, cluster)
    for why in WHYS:
        metrics.forget(RETRIES, cluster, why)
    for result in ("good", "bad"):
        metrics.forget(CHECKS, cluster, result)
    for code in range(100, 600):
        metrics.forget(REQUESTS, cluster, str(code))
