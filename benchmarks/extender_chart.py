"""Bars of the ratios to the echo, one for each case, with the goals as marks."""

from typing import Any

# (nodes, path, case, events per second, form) -> times the echo; design part 8
GOALS = {
    (5000, "/filter", "cold", 0, "NodeNames"): 6.0,
    (5000, "/filter", "repeat", 1000, "NodeNames"): 2.5,
    (200, "/filter", "cold", 0, "NodeNames"): 2.0,
    (1000, "/filter", "cold", 0, "Nodes"): 1.5,
}
HEIGHT, LEFT, WIDTH = 16, 330, 420


def chart(rows: list[dict[str, Any]]) -> str:
    """SVG of all rows of one run."""
    most = max((max(row["ratio_to_echo"], _goal(row) or 0) for row in rows), default=1.0)
    scale = WIDTH / most
    tall = HEIGHT * len(rows) + 40
    font = 'font-family="sans-serif" font-size="10"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{tall}" {font}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="14">times an echo of the same bytes (| = goal)</text>',
    ]
    for number, row in enumerate(rows):
        top = 24 + number * HEIGHT
        name = (
            f"{row['nodes']} {row['form']} {row['path']} {row['case']}, {row['events_per_second']} events/s, "
            f"{row['callers']} caller(s)"
        )
        long, goal = row["ratio_to_echo"] * scale, _goal(row)
        color = "#4a7ab5" if row["path"] == "/filter" else "#b5834a"
        parts.append(f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{LEFT}" y="{top + 2}" width="{long:.1f}" height="{HEIGHT - 5}" fill="{color}"/>')
        parts.append(f'<text x="{LEFT + long + 4:.1f}" y="{top + 10}">{row["ratio_to_echo"]:.2f}</text>')
        if goal is not None:
            at = LEFT + goal * scale
            parts.append(f'<path d="M{at:.1f} {top}v{HEIGHT}" stroke="#c00" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _goal(row: dict[str, Any]) -> float | None:
    if row["callers"] != 1:
        return None
    return GOALS.get((row["nodes"], row["path"], row["case"], row["events_per_second"], row["form"]))
