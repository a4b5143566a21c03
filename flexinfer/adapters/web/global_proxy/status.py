"""What the global proxy shows: the merged model list and the state of the clusters."""

import html
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


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<title>FlexInfer clusters</title><style>
body{{font:15px system-ui,sans-serif;margin:2rem;color:#222;background:#fff}}
table{{border-collapse:collapse}}th,td{{padding:.4rem .8rem;border-bottom:1px solid #ccc;text-align:left}}
.down{{color:#a00}}@media(prefers-color-scheme:dark){{body{{color:#ddd;background:#111}}.down{{color:#f77}}}}
</style><h1>Clusters</h1><p>Strategy: {strategy}</p><table>
<tr><th>Cluster</th><th>State</th><th>Share</th><th>Models</th><th>Outstanding</th><th>First byte</th>
<th>Spare tokens/s</th><th>Reached at</th></tr>
{rows}</table></html>
"""


def page(strategy: str, rows: list[dict[str, Any]]) -> bytes:
    """The same for people; it renews itself and needs nothing from elsewhere."""
    return _PAGE.format(strategy=html.escape(strategy), rows="\n".join(map(_row, rows))).encode()


def _row(row: dict[str, Any]) -> str:
    state = "up" if row["up"] else f"down: {row['error']}"
    latency = "" if row["latency_seconds"] is None else f"{row['latency_seconds']:.3f} s"
    spare = ", ".join(f"{model} {tokens:.0f}" for model, tokens in sorted(row["headroom"].items()))
    cells = (
        row["cluster"], state, f"{row['share']:.0%}", row["models"], row["outstanding"], latency, spare,
        ", ".join(row["urls"]),
    )  # fmt: skip
    kind = "" if row["up"] else ' class="down"'
    return f"<tr{kind}>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"
