"""Charts as SVG text: a frame with ticks, and what is drawn in it. Nothing is loaded from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 300
LEFT, TOP, BELOW = 72, 14, 44
_TICKS = 5
_ENDS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 7.5, 10)


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a chart, from 0 to a round end."""

    title: str
    end: float

    @property
    def ticks(self) -> tuple[float, ...]:
        """Places of the grid lines."""
        return tuple(self.end * step / _TICKS for step in range(_TICKS + 1))


def axis(title: str, values: Iterable[float]) -> Axis:
    """Return an axis with a round end that holds the largest finite value."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    if largest <= 0:
        return Axis(title, 1.0)
    power = 10.0 ** math.floor(math.log10(largest))
    return Axis(title, next(step * power for step in _ENDS if step * power >= largest * (1 - 1e-12)))


@dataclass(frozen=True, slots=True)
class Frame:
    """Two axes on a sheet of ``WIDTH`` x ``height``."""

    across: Axis
    up: Axis
    height: int = HEIGHT

    def x(self, value: float) -> float:
        """Return the place of a value across, in units of the picture."""
        return LEFT + WIDTH * min(max(value / self.across.end, 0.0), 1.0)

    def y(self, value: float) -> float:
        """Return the place of a value upwards."""
        return TOP + self.height * (1 - min(max(value / self.up.end, 0.0), 1.0))

    def grid(self) -> str:
        """Return lines, numbers and titles of both axes."""
        right, floor = LEFT + WIDTH, TOP + self.height
        parts = []
        for tick in self.up.ticks:
            y = self.y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
        parts += [
            f'<text x="{self.x(tick):.1f}" y="{floor + 16}" text-anchor="middle">{number(tick)}</text>'
            for tick in self.across.ticks
        ]
        parts.append(f'<text x="{right}" y="{floor + 34}" text-anchor="end">{escape(self.across.title)}</text>')
        parts.append(f'<text x="{LEFT + 6}" y="{TOP + 10}">{escape(self.up.title)}</text>')
        return "\n".join(parts)

    def line(self, points: Iterable[tuple[float, float]], style: str) -> str:
        """Return a line through points in the order given."""
        path = " ".join(f"{self.x(across):.1f},{self.y(up):.1f}" for across, up in points)
        return f'<polyline class="{style}" points="{path}"/>'


def picture(name: str, title: str, words: str, marks: str, height: int = HEIGHT) -> str:
    """Return a whole picture; ``name`` is its id, ``words`` tells who cannot see it what it shows."""
    return (
        f'<svg id="{name}" viewBox="0 0 {LEFT + WIDTH + 12} {TOP + height + BELOW}" role="img" '
        f'aria-labelledby="{name}-title {name}-words">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-words">{escape(words)}</desc>\n'
        f"{marks}\n</svg>"
    )


def number(value: float) -> str:
    """Return a number of an axis, short: ``1,200``, ``0.05``, ``12k``."""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.4g}k"
    return f"{value:,.4g}" if value < 1 else f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def bar(shares: Sequence[tuple[str, float, str]], y: float, height: float, whole: float) -> str:
    """Return one bar of parts from the left: style, size and words of each, ``whole`` filling the width."""
    parts, at = [], float(LEFT)
    for style, size, words in shares:
        width = WIDTH * max(size, 0.0) / whole if whole > 0 else 0.0
        width = min(width, LEFT + WIDTH - at)
        parts.append(
            f'<rect class="{style}" x="{at:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
            f"<title>{escape(words)}</title></rect>"
        )
        at += width
    return "\n".join(parts)
