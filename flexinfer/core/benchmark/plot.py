"""The curve of one or several results as an SVG document: tokens/s of all streams over concurrency."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from flexinfer.contracts.events import BenchCompleted, CurvePoint

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 100
# Okabe and Ito's palette: told apart with any colour vision.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the plot: its points have rising concurrency."""

    label: str
    points: tuple[CurvePoint, ...]


def lines_of(result: BenchCompleted, name: str = "") -> tuple[Line, ...]:
    """One line per prompt length of a result; ``name`` stands before the length in the legend."""
    lengths = sorted({point.prompt_tokens for point in result.curve})
    found = []
    for length in lengths:
        points = sorted((p for p in result.curve if p.prompt_tokens == length), key=lambda p: p.concurrency)
        found.append(Line(f"{name} {length} prompt tokens".strip(), tuple(points)))
    return tuple(found)


def curve_svg(title: str, lines: Sequence[Line]) -> str:
    """A whole SVG document; concurrency on a logarithmic axis. Without points it says so in the picture."""
    points = [point for line in lines for point in line.points]
    body = [f'<text x="{_WIDTH / 2}" y="24" text-anchor="middle" font-size="16">{escape(title)}</text>']
    if points:
        axes = _Axes.around(points)
        body += _grid(axes)
        for number, line in enumerate(lines):
            body += _draw(axes, line, number)
    else:
        body.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT / 2}" text-anchor="middle">no points measured</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Axes:
    """``low`` and ``high`` are base 2 logarithms of concurrency, ``top`` tokens/s at the upper edge."""

    low: float
    high: float
    top: float
    step: float
    ticks: tuple[int, ...]

    @classmethod
    def around(cls, points: Sequence[CurvePoint]) -> "_Axes":
        ticks = tuple(sorted({point.concurrency for point in points}))
        low, high = math.log2(ticks[0]), math.log2(ticks[-1])
        if low == high:
            low, high = low - 0.5, high + 0.5
        step = _nice(max(point.tokens_per_second for point in points) / 5)
        top = step * max(1, math.ceil(max(point.tokens_per_second for point in points) / step))
        return cls(low, high, top, step, ticks)

    def x(self, concurrency: int) -> float:
        return _LEFT + (math.log2(concurrency) - self.low) / (self.high - self.low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, speed: float) -> float:
        return _HEIGHT - _BOTTOM - speed / self.top * (_HEIGHT - _TOP - _BOTTOM)


def _nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return power * next(factor for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= value * 0.999)


def _grid(axes: _Axes) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    found = []
    for number in range(round(axes.top / axes.step) + 1):
        speed = number * axes.step
        y = axes.y(speed)
        found.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        found.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{speed:g}</text>')
    for tick in axes.ticks:
        x = axes.x(tick)
        found.append(f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}" stroke="black"/>')
        found.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick}</text>')
    middle = (_TOP + bottom) / 2
    found.append(f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="black"/>')
    found.append(f'<text x="{(_LEFT + right) / 2}" y="{bottom + 36}" text-anchor="middle">requests at once</text>')
    turned = f'transform="rotate(-90 18 {middle})"'
    found.append(f'<text x="18" y="{middle}" text-anchor="middle" {turned}>tokens/s of all streams</text>')
    return found


def _draw(axes: _Axes, line: Line, number: int) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    path = " ".join(f"{axes.x(p.concurrency):.1f},{axes.y(p.tokens_per_second):.1f}" for p in line.points)
    found = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>']
    for point in line.points:
        x, y = axes.x(point.concurrency), axes.y(point.tokens_per_second)
        tip = f"{point.tokens_per_second:.1f} tokens/s at {point.concurrency}, {point.requests} requests"
        found.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(tip)}</title></circle>')
    left = _LEFT + number % 2 * (_WIDTH - _LEFT - _RIGHT) / 2
    y = _HEIGHT - _BOTTOM + 58 + number // 2 * 18
    found.append(f'<rect x="{left:.0f}" y="{y - 8}" width="18" height="4" fill="{colour}"/>')
    found.append(f'<text x="{left + 24:.0f}" y="{y}">{escape(line.label)}</text>')
    return found
