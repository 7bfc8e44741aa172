"""A comparison as one HTML page with a picture of the layers: nothing is loaded from elsewhere, no script runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from trtllm_kit.checkpoint.evaluate import Comparison
from trtllm_kit.checkpoint.gate import gate_failure, judge
from trtllm_kit.checkpoint.loss import LayerLoss, weakest
from trtllm_kit.checkpoint.report import FIGURE_COLUMNS, LAYER_COLUMNS, figure_rows, layer_row
from trtllm_kit.spec.quality import Quality

_WIDTH, _HEIGHT = 720, 180
_LEFT, _TOP = 64, 12
_TICKS = 4
_LABELS = 12
"""Most numbers along the axis of layers."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --line: #c8ccd1; --soft: #5c6370;
  --attention: #2b6cb0; --feed: #c05621; --state: #2f7d4f; --bad: #b42318; --good: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #17191c; --line: #3f444b; --soft: #a0a7b1;
  --attention: #78b1f0; --feed: #f0a06a; --state: #7fd0a0; --bad: #ff8a7a; --good: #7fd0a0; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 760px;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
th, td { text-align: left; padding: 0.15rem 0.9rem 0.15rem 0; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); stroke-width: 1; }
.attention { fill: var(--attention); } .feed { fill: var(--feed); }
.state { fill: none; stroke: var(--state); stroke-width: 2; } .dot { fill: var(--state); }
.yes { color: var(--good); } .no { color: var(--bad); } .key { color: var(--soft); }
"""


def html_page(report: Comparison, asked: Quality, names: tuple[str, str]) -> str:
    """Return the page of a report; ``names`` are what the reader calls the source and the checkpoint."""
    source, converted = map(escape, names)
    failure = gate_failure(report, asked)
    verdict = (
        '<p class="yes">Every limit holds.</p>' if failure is None else f'<p class="no">{escape(failure.what)}</p>'
    )
    tried = "" if failure is None else f"<p>Try: {escape(failure.hint)}.</p>"
    limits = [(one.words, "holds" if one.holds else "does not hold") for one in judge(report, asked)]
    title = f"What {converted} lost of {source}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{verdict}\n{tried}\n"
        f"<h2>Figures</h2>\n{_table(FIGURE_COLUMNS, figure_rows(report))}\n"
        f"<h2>Limits</h2>\n{_table(('figure', 'verdict'), limits)}\n"
        f"<h2>Layers</h2>\n{_pictures(report.layers)}\n{_table(LAYER_COLUMNS, map(layer_row, report.layers))}\n"
        "</body>\n</html>\n"
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _pictures(layers: Sequence[LayerLoss]) -> str:
    if not layers:
        return "<p>No layer was compared.</p>"
    worst = ", ".join(f"layer {one.layer} ({one.error:.3%})" for one in weakest(layers, 3)) or "none"
    own = _picture(
        "own",
        "Error that each part of a layer makes by itself",
        f"Bars of {len(layers)} layers, attention beside feed-forward. The layers that lose most are: {worst}.",
        _bars(layers),
        (max(max(one.attention_error, one.feed_forward_error) for one in layers), len(layers)),
    )
    last = layers[-1]
    state = _picture(
        "state",
        "Error of the hidden state behind each layer",
        f"A line over {len(layers)} layers; behind the last one the error is {last.state_error:.3%}.",
        _line(layers),
        (max(one.state_error for one in layers), len(layers)),
    )
    key = '<p class="key">Of each pair of bars the left one is attention, the right one the feed-forward part.</p>'
    return (
        f"<h3>By itself</h3>\n<p>What a part adds to the state, given what the source's was given.</p>\n{own}\n{key}\n"
        f"<h3>Adding up</h3>\n<p>The state behind a layer, with all that was lost before it.</p>\n{state}"
    )


def _picture(name: str, title: str, description: str, marks: str, scale: tuple[float, int]) -> str:
    top, count = _ceiling(scale[0]), scale[1]
    across, down = _LEFT + _WIDTH, _TOP + _HEIGHT
    lines: list[str] = []
    for tick in range(_TICKS + 1):
        y = down - _HEIGHT * tick / _TICKS
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{across}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * top * tick / _TICKS:.3g} %</text>'
        )
    step = max(math.ceil(count / _LABELS), 1)
    lines += [
        f'<text x="{_middle(number, count):.1f}" y="{down + 16}" text-anchor="middle">{number}</text>'
        for number in range(0, count, step)
    ]
    return (
        f'<svg viewBox="0 0 {across + 8} {down + 24}" role="img" aria-labelledby="{name}-title {name}-desc">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-desc">{escape(description)}</desc>\n'
        f"{''.join(lines)}\n{marks}\n</svg>"
    )


def _ceiling(largest: float) -> float:
    """Return the end of a scale that holds the largest value: 1, 2 or 5 times a power of ten."""
    if not largest > 0 or not math.isfinite(largest):
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= largest)


def _middle(number: int, count: int) -> float:
    return _LEFT + _WIDTH * (number + 0.5) / count


def _height(value: float, top: float) -> float:
    return _HEIGHT * min(value / top, 1.0) if math.isfinite(value) else float(_HEIGHT)


def _bars(layers: Sequence[LayerLoss]) -> str:
    top = _ceiling(max(max(one.attention_error, one.feed_forward_error) for one in layers))
    width = _WIDTH / len(layers) * 0.4
    found: list[str] = []
    for at, one in enumerate(layers):
        middle = _middle(at, len(layers))
        for style, value, x in (
            ("attention", one.attention_error, middle - width),
            ("feed", one.feed_forward_error, middle),
        ):
            height = _height(value, top)
            found.append(
                f'<rect class="{style}" x="{x:.1f}" y="{_TOP + _HEIGHT - height:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}"><title>layer {one.layer}, {style}: {value:.3%}</title></rect>'
            )
    return "\n".join(found)


def _line(layers: Sequence[LayerLoss]) -> str:
    top = _ceiling(max(one.state_error for one in layers))
    points = [
        (_middle(at, len(layers)), _TOP + _HEIGHT - _height(one.state_error, top), one) for at, one in enumerate(layers)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    dots = "\n".join(
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>layer {one.layer}: {one.state_error:.3%}</title></circle>"
        for x, y, one in points
    )
    return f'<polyline class="state" points="{path}"/>\n{dots}'
