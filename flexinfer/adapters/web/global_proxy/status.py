"""What the global proxy shows: the merged model list and the state of the clusters."""

from typing import Any

from flexinfer.core.routing.clusters import Clusters


def merged(clusters: Clusters) -> dict[str, dict[str, Any]]:
    """Entries of all clusters by id, each with the clusters that have it under ``flexinfer.clusters``."""
    rows: dict[str, dict[str, Any]] = {}
    for cluster in clusters.members.values():
        for row in cluster.listing:
            name = str(row["id"])
            about = row.get("flexinfer")
            found = rows.get(name)
            if found is None:
                details = dict(about) if isinstance(about, dict) else {}
                found = rows[name] = {**row, "flexinfer": {**details, "clusters": {}}}
            state = about.get("state", "ready") if isinstance(about, dict) else "ready"
            found["flexinfer"]["clusters"][cluster.name] = state if cluster.health.up else "down"
    return rows


def answers_to(row: dict[str, Any], name: str) -> bool:
    """Whether the entry has this alias or full name."""
    about = row["flexinfer"]
    aliases = about.get("aliases")
    return name == f"{about.get('namespace')}/{about.get('model')}" or (isinstance(aliases, list) and name in aliases)


def report(clusters: Clusters, now: float) -> list[dict[str, Any]]:
    """One row per cluster for people and tools."""
    return [
        {
            "cluster": cluster.name,
            "urls": list(cluster.urls),
            "source": "flag" if cluster.static else "bus",
            "up": cluster.health.up,
            "share": round(cluster.health.share(now), 2),
            "error": cluster.health.error,
            "models": len(cluster.listing),
            "outstanding": cluster.outstanding,
            "latency_seconds": cluster.latency,
            "headroom_age_seconds": None if cluster.heard_at is None else round(now - cluster.heard_at, 1),
            "headroom": cluster.headroom,
        }
        for cluster in clusters.members.values()
    ]
