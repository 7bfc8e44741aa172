"""A run as one HTML page that needs nothing else: figures, distributions, and the run over time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from trtllm_kit.bench.report import COLUMNS, TITLES, latency_rows, notes, rate_rows
from trtllm_kit.bench.result import histograms_of

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}text{font-size:11px;fill:#555}
.bad{color:#b00}@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}td,th{border-color:#333}
text{fill:#aaa}}
"""
_COLOURS = ("#2a6fbb", "#c2571a", "#2c8a4b", "#8a4fb0", "#a33")
_WIDE, _HIGH, _LEFT, _TOP, _ROW = 900, 260, 60, 14, 16
_LETTERS = 42
"""Of a name under a plot."""
Points = Sequence[tuple[float, float]]


def page_of(document: Mapping[str, Any], title: str) -> str:
    """Return the page of a run."""
    asked = ", ".join(f"{key} {value}" for key, value in document["asked"].items() if value not in (None, "", False))
    said = "".join(f'<li class="{"bad" if "WARNING" in note else ""}">{escape(note)}</li>' for note in notes(document))
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(asked)}</p><ul>{said}</ul>",
        _table(("rate", "value"), rate_rows(document)),
        _table(COLUMNS, latency_rows(document)),
        "<h2>Share of values up to a time</h2>",
        _curves(document),
        "<h2>First tokens over the run</h2>",
        _timeline(document),
        *_server(document),
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _curves(document: Mapping[str, Any]) -> str:
    held = histograms_of(document)
    shown = (name for name in ("ttft", "tpot", "gap", "e2e") if name in held and held[name].count)
    named = {TITLES[name]: held[name].curve() for name in shown}
    return plot(named, "seconds", "share", logarithmic=True)


def _timeline(document: Mapping[str, Any]) -> str:
    requests = [one for one in document["requests"] if "first" in one]
    first = [(one["intended"], one["first"] - one["intended"]) for one in requests]
    gaps = [(one["intended"], one["longest_gap"]) for one in requests]
    return plot(
        {"first token": first, "longest gap": gaps}, "seconds of the run", "seconds", dots=True, span=_span(document)
    )


def _span(document: Mapping[str, Any]) -> tuple[float, float]:
    """Return the seconds that the plots over the run show, which are the same in each."""
    ends = [one.get("ended", 0.0) for one in document["requests"]]
    readings = (document.get("server") or {}).get("seconds", [])
    return min([0.0, *readings]), max([0.0, *ends, *readings])


def _server(document: Mapping[str, Any]) -> list[str]:
    """Draw what the server told of its cache and its queue, on the clock of the plot above."""
    held = document.get("server", {})
    made = []
    for word, title in (("kv_cache", "KV cache"), ("queue|pending|active|request", "Requests in the server")):
        named = {
            name: [(at, value) for at, value in zip(held["seconds"], values, strict=True) if value is not None]
            for name, values in held.get("series", {}).items()
            if any(part in name for part in word.split("|")) and "_total" not in name
        }
        if named:
            shown = dict(list(named.items())[: len(_COLOURS)])
            made += [f"<h2>{title}</h2>", plot(shown, "seconds of the run", "value", span=_span(document))]
    return made


def plot(
    named: Mapping[str, Points],
    across: str,
    up: str,
    *,
    logarithmic: bool = False,
    dots: bool = False,
    span: tuple[float, float] | None = None,
) -> str:
    """Return an SVG of one or more lines or clouds of points, over one pair of axes; ``span`` is of the lower one."""
    points = [point for line in named.values() for point in line]
    if not points:
        return "<p>nothing to draw</p>"
    least = min((x for x, _ in points if x > 0), default=1e-6) if logarithmic else min(x for x, _ in points)
    most, high = max(x for x, _ in points), max(y for _, y in points) or 1.0
    least, most = span or (least, most)
    scale = _Scale(least, max(most, least + abs(least) * 0.01 + 1e-9), high, logarithmic)
    parts = [
        f'<svg viewBox="0 0 {_WIDE} {_HIGH + 60 + _ROW * ((len(named) - 1) // 3)}" role="img">',
        *scale.axes(across, up),
    ]
    for place, (name, line) in enumerate(named.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        parts.append(_cloud(scale, line, colour) if dots else _line(scale, line, colour))
        y = _HIGH + 54 + _ROW * (place // 3)
        parts.append(
            f'<text x="{_LEFT + 280 * (place % 3)}" y="{y}" style="fill:{colour}">{escape(_short(name))}</text>'
        )
    return "".join(parts) + "</svg>"


def _short(name: str) -> str:
    """Cut a name in its middle: series of one family differ at their ends."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS // 3]}…{name[-_LETTERS * 2 // 3 + 1 :]}"


class _Scale:
    """Turns values into places of the picture."""

    def __init__(self, least: float, most: float, high: float, logarithmic: bool) -> None:
        from math import log10

        self._least, self._most, self._high = least, most, high
        self._at = (lambda x: log10(max(x, least))) if logarithmic else (lambda x: x)

    def x(self, value: float) -> float:
        share = (self._at(value) - self._at(self._least)) / (self._at(self._most) - self._at(self._least))
        return round(_LEFT + share * (_WIDE - _LEFT - 10), 1)

    def y(self, value: float) -> float:
        return round(_TOP + (1 - value / self._high) * (_HIGH - _TOP), 1)

    def axes(self, across: str, up: str) -> list[str]:
        found = [f'<path d="M{_LEFT} {_TOP}V{_HIGH}H{_WIDE - 10}" fill="none" stroke="#888"/>']
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            value = self._high * share
            found.append(f'<text x="{_LEFT - 6}" y="{self.y(value) + 4}" text-anchor="end">{value:.3g}</text>')
            end = "end" if share == 1.0 else "middle"
            x = self._least + (self._most - self._least) * share
            if self._at(10) != 10:
                x = self._least * (self._most / self._least) ** share
            found.append(f'<text x="{self.x(x)}" y="{_HIGH + 16}" text-anchor="{end}">{x:.3g}</text>')
        found.append(f'<text x="{_WIDE - 10}" y="{_HIGH + 32}" text-anchor="end">{escape(across)}</text>')
        return [*found, f'<text x="{_LEFT + 6}" y="{_TOP - 4}">{escape(up)}</text>']


def _line(scale: _Scale, points: Points, colour: str) -> str:
    path = "L".join(f"{scale.x(x)} {scale.y(y)}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _cloud(scale: _Scale, points: Points, colour: str) -> str:
    step = max(len(points) // 2000, 1)
    circles = (f'<circle cx="{scale.x(x)}" cy="{scale.y(y)}" r="2.2"/>' for x, y in points[::step])
    return f'<g fill="{colour}" fill-opacity=".6">{"".join(circles)}</g>'
