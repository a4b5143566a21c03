"""Plots as SVG text: a row of dots per case, or lines over a logarithmic axis."""

import math
from collections.abc import Mapping, Sequence
from html import escape

COLORS = ("#c0392b", "#7f8c8d", "#b0b7bb", "#5d6d7e", "#2e86c1", "#148f77", "#7d3c98", "#b9770e", "#1b2631", "#a04000")
FONT = 'font-family="sans-serif" font-size="11"'
ROW, LEFT, WIDTH = 20, 230, 430
PANEL, GAP = 240, 80


def dots(title: str, rows: Sequence[tuple[str, Mapping[str, float]]], goal: float) -> str:
    """Shares from ``lowest`` to 1, one row for each of ``rows``, one colour for each name; ``goal`` is a line. The
    first name is drawn large."""
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    lowest = math.floor(10 * min(value for _, values in rows for value in values.values())) / 10
    tall = ROW * len(rows) + 60
    parts = _sheet(LEFT + WIDTH + 210, max(tall, 40 + 16 * len(names)))
    parts.append(f'<text x="{LEFT}" y="16">{escape(title)}</text>')
    for step in range(round(lowest * 10), 11):
        at = _across(step / 10, lowest)
        parts.append(f'<path d="M{at:.1f} 24V{tall - 30}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{tall - 16}" text-anchor="middle">{step / 10:g}</text>')
    at = _across(goal, lowest)
    parts.append(f'<path d="M{at:.1f} 24V{tall - 30}" stroke="#c00" stroke-dasharray="4 3"/>')
    for number, (label, values) in enumerate(rows):
        y = 36 + number * ROW
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
        # The first is drawn last, on top.
        for name in reversed(list(values)):
            color, radius = COLORS[names.index(name) % len(COLORS)], 6 if name == names[0] else 4
            parts.append(f'<circle cx="{_across(values[name], lowest):.1f}" cy="{y}" r="{radius}" fill="{color}"/>')
    parts += _legend(names, LEFT + WIDTH + 24)
    return "\n".join([*parts, "</svg>"]) + "\n"


def lines(panels: Sequence[tuple[str, Mapping[str, Sequence[tuple[float, float]]]]], across: str) -> str:
    """One panel for each title: lines of ``(x, y)`` by name, x logarithmic, y from 0."""
    names = list(dict.fromkeys(name for _, series in panels for name in series))
    wide = len(panels) * (PANEL + GAP) + 200
    parts = _sheet(wide, max(PANEL + 80, 40 + 16 * len(names)))
    for number, (title, series) in enumerate(panels):
        left, top = GAP + number * (PANEL + GAP) - 20, 30
        points = [point for line in series.values() for point in line]
        low, high = math.log(min(x for x, _ in points)), math.log(max(x for x, _ in points))
        most = max(y for _, y in points) * 1.15 or 1.0
        parts.append(f'<text x="{left}" y="18">{escape(title)}</text>')
        parts.append(f'<rect x="{left}" y="{top}" width="{PANEL}" height="{PANEL}" fill="none" stroke="#999"/>')
        for share in (0.0, 0.5, 1.0):
            y = top + PANEL * (1 - share)
            parts.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{most * share:.3g}</text>')
        for x in sorted({x for x, _ in points}):
            at = left + PANEL * (math.log(x) - low) / ((high - low) or 1.0)
            parts.append(f'<text x="{at:.1f}" y="{top + PANEL + 14}" text-anchor="middle">{x:g}</text>')
        parts.append(
            f'<text x="{left + PANEL / 2}" y="{top + PANEL + 30}" text-anchor="middle">{escape(across)}</text>'
        )
        for name, line in series.items():
            color = COLORS[names.index(name) % len(COLORS)]
            path = " ".join(
                f"{left + PANEL * (math.log(x) - low) / ((high - low) or 1.0):.1f},{top + PANEL * (1 - y / most):.1f}"
                for x, y in line
            )
            parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
    parts += _legend(names, wide - 200)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _sheet(wide: float, tall: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:g}" height="{tall:g}" {FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]


def _across(value: float, lowest: float) -> float:
    return LEFT + WIDTH * (value - lowest) / (1 - lowest)


def _legend(names: Sequence[str], left: float) -> list[str]:
    found = []
    for number, name in enumerate(names):
        y = 36 + 16 * number
        found.append(f'<circle cx="{left}" cy="{y}" r="4" fill="{COLORS[number % len(COLORS)]}"/>')
        found.append(f'<text x="{left + 10}" y="{y + 4}">{escape(name)}</text>')
    return found
