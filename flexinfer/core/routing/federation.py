"""Facts about clusters: what a model list says, and what headroom events say."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import ClusterHeadroom
from flexinfer.core.routing.clusters import FORGET_SECONDS, SILENT_SECONDS, Cluster, Clusters, State

MOST_CLUSTERS: Final = 256
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_URL = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(?:/[A-Za-z0-9._~/-]*)?")


def cluster_of(source: str) -> str:
    """The cluster in an event source ``/clusters/<c>/…``; empty if there is none that could be one."""
    parts = source.split("/")
    name = parts[2] if len(parts) > 3 and parts[1] == "clusters" else ""
    return name if _NAME.fullmatch(name) else ""


def take_listing(cluster: Cluster, rows: Iterable[Mapping[str, Any]]) -> None:
    """Take the ``data`` of its ``/v1/models``; entries of other servers have an ``id`` and nothing more."""
    models: dict[str, State] = {}
    canonical: dict[str, str] = {}
    listing = []
    for row in rows:
        name = row.get("id")
        if not isinstance(name, str):
            continue
        listing.append(dict(row))
        about = row.get("flexinfer")
        names, state, key = [name], "ready", name
        if isinstance(about, Mapping):
            key = f"{about.get('namespace')}/{about.get('model')}"
            aliases = about.get("aliases")
            names += (
                [key, *(alias for alias in aliases if isinstance(alias, str))] if isinstance(aliases, list) else [key]
            )
            state = str(about.get("state"))
        for each in names:
            models[each] = state if state in {"ready", "asleep"} else "unavailable"  # type: ignore[assignment] # a str to mypy
            canonical[each] = key
    cluster.models, cluster.canonical, cluster.listing = models, canonical, tuple(listing)


def take_headroom(clusters: Clusters, event: Event, now: float) -> Cluster | None:
    """Take one headroom event; the cluster it made known, None if it was known or the event is another.

    A cluster named by a flag keeps its URL; the others are reached at the URLs their proxies give. Whoever may
    publish on the hub writes these names and URLs, and they go into headers, labels and requests: raises ValueError
    for what is no cluster's name or no proxy's URL, and for more clusters than MOST_CLUSTERS.
    """
    data = event.data
    if not isinstance(data, ClusterHeadroom):
        return None
    name = cluster_of(event.source)
    if not name or not _URL.fullmatch(data.url):
        raise ValueError(f"{event.source[:80]!r} at {data.url[:80]!r} is no cluster with a proxy's URL")
    cluster = clusters.members.get(name)
    fresh = cluster is None
    if cluster is None:
        if len(clusters.members) >= MOST_CLUSTERS:
            raise ValueError(f"cluster {name} is one more than {MOST_CLUSTERS}")
        cluster = clusters.members[name] = Cluster(name, (data.url,), static=False)
    cluster.heard_at = now
    cluster.proxies[data.proxy] = (data.url, now)
    _refresh_urls(cluster, now)
    # Every proxy of a cluster counts the whole cluster's use, so their words agree but for delay: the latest counts.
    cluster.headroom = {f"{row.namespace}/{row.model}": row.tokens_per_second for row in data.models}
    return cluster if fresh else None


def _refresh_urls(cluster: Cluster, now: float) -> None:
    cluster.proxies = {k: v for k, v in cluster.proxies.items() if now - v[1] <= SILENT_SECONDS}
    if not cluster.static and cluster.proxies:
        cluster.urls = tuple(sorted({url for url, _ in cluster.proxies.values()}))


def tick(clusters: Clusters, now: float) -> list[Cluster]:
    """Time passes: proxies that fell silent are no longer asked; clusters long gone are returned and forgotten."""
    gone = []
    for cluster in tuple(clusters.members.values()):
        _refresh_urls(cluster, now)
        if not cluster.static and cluster.heard_at is not None and now - cluster.heard_at > FORGET_SECONDS:
            gone.append(clusters.members.pop(cluster.name))
    return gone
