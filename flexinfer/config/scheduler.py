"""Settings of ``flexinfer-sched``."""

from pathlib import Path

from flexinfer.config.common import Duration, KubeSettings, Port, RecordSettings, setting


class SchedulerSettings(RecordSettings, KubeSettings):
    """Answer kube-scheduler's extender calls from memory: filter, prioritize, preempt, explain."""

    host: str = setting("", "address of the extender listener; empty: all")
    port: Port = setting(8000, "port of the extender; 0: a free one")
    metrics_port: Port = setting(0, "plain port of the ops endpoints when TLS is on; 0: none")
    tls_cert: Path | None = setting(None, "PEM certificate; with it the extender speaks HTTPS")
    tls_key: Path | None = setting(None, "PEM key of --tls-cert")
    tls_client_ca: Path | None = setting(None, "PEM CA that client certificates must be signed by")
    weight_tps: float = setting(0.7, "weight of measured speed (0..100)", ge=0)
    weight_util: float = setting(0.2, "weight of utilisation (0..100), subtracted", ge=0)
    weight_cost: float = setting(0.1, "weight of cost (0..100), subtracted", ge=0)
    weight_kv_cache: float = setting(0.3, "weight of KV-cache use (0..100), subtracted", ge=0)
    weight_vram_free: float = setting(10.0, "weight of the free VRAM ratio (0..1)", ge=0)
    weight_cache: float = setting(0.0, "weight of having the model's files in the node's cache (0 or 100)", ge=0)
    shadow_weights: str = setting(
        "", "weights to evaluate beside the real ones and to record, never to act on: tps=1,util=0"
    )
    reservation_ttl: Duration = setting(5.0, "how long an answered pod holds its best node unbound")
    degraded_after: Duration = setting(10.0, "bus silence after which a cold replica reads labels instead")
    max_body: int = setting(64 << 20, "largest request body in bytes (6 MB is 1,000 full nodes)", ge=1024)
    label_prefix: str = setting("flexinfer.ai/", "prefix of node annotations such as cost")
    advertise: str = setting("", "instance name in event sources; empty: the host name")
