"""Settings of ``flexinfer-proxy`` and ``flexinfer-global-proxy``."""

from pathlib import Path
from typing import Literal

from flexinfer.config.common import BusSettings, Duration, Port, setting


class ProxySettings(BusSettings):
    """One OpenAI-compatible URL for every model of this cluster."""

    host: str = setting("", "address of the listener; empty: all")
    port: Port = setting(8080, "port of the listener; 0: a free one")
    advertise_url: str = setting("", "URL of this proxy in headroom events; empty: from host and port")
    instance: str = setting("", "name of this replica in events; empty: the host name", env="POD_NAME")
    api_keys_file: Path | None = setting(None, "file with one API key per line, reread on change; none: open")
    max_body: int = setting(64 << 20, "largest request body in bytes", ge=1024)
    queue_limit: int = setting(256, "requests that may wait per model while it wakes", ge=0)
    queue_timeout: Duration = setting(300.0, "longest wait for a cold start, unless the model says less")
    connect_timeout: Duration = setting(5.0, "time to connect to an engine")
    first_byte_timeout: Duration = setting(600.0, "time to an engine's first byte")
    idle_timeout: Duration = setting(300.0, "longest silence inside an answer")
    drain_timeout: Duration = setting(30.0, "time for requests in flight after SIGTERM")


class GlobalProxySettings(BusSettings):
    """One URL over several clusters."""

    host: str = setting("", "address of the listener; empty: all")
    port: Port = setting(8090, "port of the listener; 0: a free one")
    clusters: str = setting(
        "",
        "name=url pairs, comma separated",
        env="GLOBAL_PROXY_CLUSTERS",
    )
    strategy: Literal["round-robin", "weighted", "failover", "latency", "headroom"] = setting(
        "round-robin", "how a cluster is chosen", env="GLOBAL_PROXY_STRATEGY"
    )
    weights: str = setting("", "name=weight pairs, comma separated", env="GLOBAL_PROXY_WEIGHTS")
    failover_order: str = setting("", "names, comma separated", env="GLOBAL_PROXY_FAILOVER_ORDER")
    health_interval: Duration = setting(5.0, "period of active health checks")
    max_body: int = setting(64 << 20, "largest request body in bytes", ge=1024)
    connect_timeout: Duration = setting(5.0, "time to connect to a cluster")
    first_byte_timeout: Duration = setting(600.0, "time to a cluster's first byte")
    idle_timeout: Duration = setting(300.0, "longest silence inside an answer")
    drain_timeout: Duration = setting(30.0, "time for requests in flight after SIGTERM")
