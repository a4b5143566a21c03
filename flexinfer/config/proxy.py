"""Settings of ``flexinfer-proxy`` and ``flexinfer-global-proxy``."""

import re
from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator

from flexinfer.config.common import BusSettings, Duration, Port, RecordSettings, setting
from flexinfer.core.routing.clusters import Cluster

_CLUSTER = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")


def _pairs(text: str) -> dict[str, str]:
    """``name=value`` pairs. Raises ValueError."""
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not value or not _CLUSTER.fullmatch(name):
            raise ValueError(f"{part!r} is not name=value with a name of [a-z0-9.-]")
        if name in found:
            raise ValueError(f"{name!r} is named twice")
        found[name] = value
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (piece.strip() for piece in text.split(","))))


class ProxySettings(RecordSettings, BusSettings):
    """One OpenAI-compatible URL for every model of this cluster."""

    host: str = setting("", "address of the listener; empty: all")
    port: Port = setting(8080, "port of the listener; 0: a free one")
    advertise_url: str = setting("", "URL of this proxy in headroom events; empty: from host and port")
    instance: str = setting("", "name of this replica in events; empty: the host name", env="POD_NAME")
    api_keys_file: Path | None = setting(None, "file with one API key per line, reread on change; none: open")
    max_body: int = setting(64 << 20, "largest request body in bytes", ge=1024)
    max_buffered: int = setting(1 << 30, "bytes of all request bodies held at once", ge=1024)
    header_timeout: Duration = setting(15.0, "time for a client to send a request's head; slower is an attack")
    queue_limit: int = setting(256, "requests that may wait per model while it wakes", ge=0)
    queue_timeout: Duration = setting(300.0, "longest wait for a cold start, unless the model says less")
    connect_timeout: Duration = setting(5.0, "time to connect to an engine")
    first_byte_timeout: Duration = setting(600.0, "time to an engine's first byte")
    idle_timeout: Duration = setting(300.0, "longest silence inside an answer")
    drain_timeout: Duration = setting(30.0, "time for requests in flight after SIGTERM")
    accept_timeout: Duration = setting(
        5.0, "time after SIGTERM in which new connections are still served: balancers hear of it late"
    )
    access_log_rate: float = setting(10.0, "access log lines (and events) per second at most; 0: none", ge=0)
    workers: int = setting(1, "processes that share the port, for more than one core", ge=1, le=64)
    worker_index: int = setting(-1, "set by the parent of a worker", ge=-1)
    worker_folder: Path | None = setting(None, "set by the parent of a worker: where workers meet")


class GlobalProxySettings(RecordSettings, BusSettings):
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
    health_interval: Duration = setting(
        1.0, "period of active health checks; three bad ones in a row and a cluster is down"
    )
    clusters_ca: Path | None = setting(None, "PEM file of the CA of https clusters; none: those of the system")
    check_key_file: Path | None = setting(None, "file with the API key that health checks show to the clusters")
    max_body: int = setting(64 << 20, "largest request body in bytes", ge=1024)
    connect_timeout: Duration = setting(2.0, "time to connect to a cluster")
    first_byte_timeout: Duration = setting(600.0, "time to a cluster's first byte")
    idle_timeout: Duration = setting(300.0, "longest silence inside an answer")
    drain_timeout: Duration = setting(30.0, "time for requests in flight after SIGTERM")
    accept_timeout: Duration = setting(
        5.0, "time after SIGTERM in which new connections are still served: balancers hear of it late"
    )

    @field_validator("clusters")
    @classmethod
    def _clusters_have_urls(cls, text: str) -> str:
        for name, url in _pairs(text).items():
            if not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", url):
                raise ValueError(f"the URL of {name!r} must be http(s)://host[:port], not {url!r}")
        return text

    @field_validator("weights")
    @classmethod
    def _weights_are_numbers(cls, text: str) -> str:
        for name, weight in _pairs(text).items():
            if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", weight):
                raise ValueError(f"the weight of {name!r} must be a number of 0 or more, not {weight!r}")
        return text

    @model_validator(mode="after")
    def _names_are_clusters(self) -> "GlobalProxySettings":
        known = set(_pairs(self.clusters))
        strange = [name for name in (*_pairs(self.weights), *_names(self.failover_order)) if name not in known]
        # With a bus, clusters may make themselves known later; without one a strange name is a typo.
        if strange and not self.nats_url:
            raise ValueError(f"weights and failover order name clusters that are not in --clusters: {strange}")
        return self

    def static_clusters(self) -> tuple[Cluster, ...]:
        """The clusters of the flags, in failover order (those it does not name come last, as given)."""
        order = {name: i for i, name in enumerate(_names(self.failover_order))}
        found = [Cluster(name, (url.rstrip("/"),), self.weight_of(name)) for name, url in _pairs(self.clusters).items()]
        return tuple(sorted(found, key=lambda cluster: order.get(cluster.name, len(order))))

    def weight_of(self, name: str) -> float:
        """Weight of a cluster; 1 unless given."""
        return float(_pairs(self.weights).get(name, "1"))
