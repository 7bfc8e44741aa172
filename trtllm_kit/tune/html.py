"""A decision as one HTML page: a Pareto chart to point at, timelines, memory bars. Nothing is loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from trtllm_kit.resources import package_file
from trtllm_kit.tune import picture
from trtllm_kit.tune.report import FIGURE_COLUMNS, figure_rows, in_unit, setting_word
from trtllm_kit.units import format_bytes

_BAR, _STEP = 26, 46
Document = Mapping[str, Any]


def html_page(found: Document) -> str:
    """Return the page of a ``report.document``."""
    question = found["question"]
    title = f"{found['model'] or question['model']} on {', '.join(question['machines'])}"
    shown = found["winner"] or found["nearest"]
    style, script = (package_file("tune", name).read_text("utf-8") for name in ("page.css", "page.js"))
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(question['words'])}</p>",
        _verdict(found),
        *(_shown(shown) if shown else ()),
        "<h2>Tokens a second of a GPU, and of a user</h2>",
        _pareto(found),
        "<h2>What stopped the others</h2>",
        _stopped(found),
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f'\n<script type="application/json" id="points">{_as_script(_points(found))}</script>\n'
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _verdict(found: Document) -> str:
    if found["winner"]:
        return f'<p class="yes">{escape(found["winner"]["words"])} keeps the promise.</p>'
    why, near = escape(found["blocking"]), found["nearest"]
    if not near:
        return f'<p class="no">No configuration can run: {why}.</p>'
    return f'<p class="no">No configuration keeps the promise: {why}. Nearest is {escape(near["words"])}.</p>'


def _shown(shown: Document) -> Iterable[str]:
    """Yield the sections about the configuration itself."""
    estimate = shown["estimate"]
    yield "<h2>Settings</h2>"
    yield _table(("profile key", "value"), ((key, setting_word(value)) for key, value in shown["changes"].items()))
    for one in shown["warnings"]:
        yield f"<p>{escape(one['rule'])}: {escape(one['message'])} {escape(one['compared'])}</p>"
    if estimate is None:
        return
    yield "<h2>Figures</h2>"
    yield _table(FIGURE_COLUMNS, figure_rows(estimate["figures"]))
    yield "<h2>Where the time goes</h2>"
    yield _time_bar(estimate["parts"])
    yield "<h2>Memory of the fullest GPU</h2>"
    yield _memory_bar(shown["memory"])
    yield "<h2>One replica over time</h2>"
    yield from _timelines(estimate["timeline"])


def _time_bar(parts: Sequence[Document]) -> str:
    shares = [
        (f"part-{place % 6}", part["share"], f"{part['name']}: {part['share']:.1%} ({part['source']})")
        for place, part in enumerate(parts)
    ]
    words = "; ".join(words for _, _, words in shares)
    return picture.picture("time", "Shares of the step time", words, picture.bar(shares, 8, _BAR, 1.0), 4) + _key(
        shares
    )


def _memory_bar(memory: Document) -> str:
    cache = max(memory["kv_cache"], 0)
    uses = list(memory["terms"].items())
    shares = [
        (f"part-{place % 6}", float(size), f"{name}: {format_bytes(size)}") for place, (name, size) in enumerate(uses)
    ]
    shares.append(("part-cache", float(cache), f"KV cache: {format_bytes(cache)}"))
    free = memory["capacity"] - cache - sum(size for _, size in uses)
    shares.append(("part-free", float(max(free, 0)), f"left free: {format_bytes(max(free, 0))}"))
    words = "; ".join(words for _, _, words in shares)
    marks = picture.bar(shares, 8, _BAR, float(memory["capacity"]))
    return picture.picture("memory", f"Memory of {format_bytes(memory['capacity'])}", words, marks, 4) + _key(shares)


def _key(shares: Sequence[tuple[str, float, str]]) -> str:
    items = " · ".join(f"{escape(words)}" for _, _, words in shares)
    return f'<p class="key">From the left: {items}.</p>'


def _timelines(moments: Sequence[Document]) -> Iterable[str]:
    if len(moments) < 2:
        return
    across = picture.axis("seconds", (moment["time"] for moment in moments))
    requests = picture.Frame(
        across, picture.axis("requests", (max(moment["running"], moment["waiting"]) for moment in moments)), 160
    )
    lines = [
        requests.grid(),
        requests.line(((moment["time"], moment["running"]) for moment in moments), "line-one"),
        requests.line(((moment["time"], moment["waiting"]) for moment in moments), "line-two"),
    ]
    most = max(moment["waiting"] for moment in moments)
    words = f"Requests under way (first line) and waiting (second line, at most {most})."
    yield picture.picture("requests", "Requests over time", words, "\n".join(lines), 160)
    yield f'<p class="key">{escape(words)}</p>'
    cache = picture.Frame(across, picture.Axis("share of the KV cache that requests hold", 1.0), 160)
    held = cache.line(((moment["time"], moment["kv"]) for moment in moments), "line-three")
    fullest = max(moment["kv"] for moment in moments)
    yield picture.picture(
        "cache", "KV cache over time", f"At its fullest {fullest:.0%} are held.", f"{cache.grid()}\n{held}", 160
    )


def _pareto(found: Document) -> str:
    points = found["points"]
    if not points:
        return "<p>Nothing could be simulated.</p>"
    frame = picture.Frame(
        picture.axis("tokens/s of a user", (point["tokens_per_s_per_user"] for point in points)),
        picture.axis("tokens/s of a GPU", (point["tokens_per_s_per_gpu"] for point in points)),
    )
    front = sorted((point["tokens_per_s_per_user"], point["tokens_per_s_per_gpu"]) for point in found["front"])
    marks = [frame.grid(), frame.line(front, "front")]
    styled = [(_style(point, found), place, point) for place, point in enumerate(points)]
    styled.sort(key=lambda one: ("winner" in one[0], "on-front" in one[0], "kept" in one[0]))  # the last is on top
    marks += [_mark(frame, place, point, style) for style, place, point in styled]
    words = f"{len(points)} simulated configurations, {len(front)} of them on the front that no other beats in both."
    return (
        picture.picture("pareto", "Speed of a GPU against speed of a user", words, "\n".join(marks))
        + '\n<div id="filters"></div>\n<table id="detail"></table>\n'
        + f'<p class="key">{escape(words)} Point at one to read it, click to keep it.</p>\n'
        + _table(
            ("configuration", "at once", "tokens/s/GPU", "tokens/s/user"),
            (
                (
                    point["words"],
                    f"{point['concurrency']:,}",
                    f"{point['tokens_per_s_per_gpu']:,.0f}",
                    f"{point['tokens_per_s_per_user']:,.1f}",
                )
                for point in found["front"]
            ),
        )
    )


def _mark(frame: picture.Frame, place: int, point: Document, style: str) -> str:
    x, y = frame.x(point["tokens_per_s_per_user"]), frame.y(point["tokens_per_s_per_gpu"])
    return (
        f'<circle class="point {style}" data-point="{place}" tabindex="0" cx="{x:.1f}" cy="{y:.1f}" r="4">'
        f"<title>{escape(point['words'])}</title></circle>"
    )


def _style(point: Document, found: Document) -> str:
    styles = ["kept"] if point["kept"] else []
    own = (point["words"], point["concurrency"])
    if own in {(one["words"], one["concurrency"]) for one in found["front"]}:
        styles.append("on-front")
    winner = found["winner"]
    if winner and own == (winner["words"], winner["concurrency"]):
        styles.append("winner")
    return " ".join(styles)


def _points(found: Document) -> list[dict[str, Any]]:
    """Return what the script shows of each point, and what it can be filtered by."""
    return [
        {
            "shown": {
                "configuration": point["words"],
                "machine": point["machine"],
                "requests at once": f"{point['concurrency']:,}",
                "tokens/s": f"{point['tokens_per_s']:,.0f}",
                "tokens/s of a GPU": f"{point['tokens_per_s_per_gpu']:,.0f}",
                "tokens/s of a user": f"{point['tokens_per_s_per_user']:,.1f}",
                "first token": in_unit(point["ttft_at_percentile"], "s"),
                "each later token": in_unit(point["tpot_at_percentile"], "s"),
                "longest gap": in_unit(point["gap_at_percentile"], "s"),
                "promise": "kept" if point["kept"] else f"kept by {point['keeps']:.0%} of the requests",
            },
            "filter": {
                "machine": point["machine"],
                "weights": point["weights"] or "stored",
                "KV cache": point["kv_cache"] or "stored",
                "tensor": point["tensor"],
                "pipeline": point["pipeline"],
                "replicas": point["replicas"],
            },
        }
        for point in found["points"]
    ]


def _stopped(found: Document) -> str:
    count = found["counts"]
    rows = [
        (
            one["constraint"],
            f"{one['shapes']:,}",
            f"{one['configurations']:,}",
            f"{one['message']} {one['compared']} ({one['example']})",
        )
        for one in found["stopped"]
    ]
    words = (
        f"{count['configurations']:,} configurations, {count['bounded']:,} of them legal and bounded; "
        f"{count['simulations']} simulations stand for {count['simulated_configurations']:,} configurations."
    )
    columns = ("constraint", "whole shapes", "configurations", "the first of them")
    return f"<p>{escape(words)}</p>\n{_table(columns, rows)}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _as_script(data: Any) -> str:
    """Return JSON that no HTML reader takes for the end of a script."""
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026")
