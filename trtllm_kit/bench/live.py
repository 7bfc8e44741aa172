"""A run while it goes on: what the client tells of it each second, and what is shown of that. Pure.

The client tells as little as it can, for the time it takes is taken from its answers: counts, the first tokens that
came since the last telling, and of each stream its mean time a piece since then. A process of its own draws it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.histogram import Histogram
from trtllm_kit.health.spark import sparkline
from trtllm_kit.units import counted

SECONDS = 40
"""How far back the lines of bars reach, a bar a second."""
BARS = 24
"""Width of the longest bar of a histogram, characters."""
_NAME = 18
_EDGES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Upper edges of the histogram of first tokens, seconds; one more bucket holds the rest."""
SERVER = {
    'nv_trt_llm_kv_cache_block_metrics{fraction}': "KV cache used",
    'nv_trt_llm_request_metrics{queued}': "waiting",
    'nv_trt_llm_request_metrics{active}': "active",
    "trtllm_kv_cache_utilization": "KV cache used",
    "trtllm_num_requests_waiting": "waiting",
    "trtllm_num_requests_running": "active",
    "nv_gpu_utilization": "GPU busy",
    "nv_gpu_power_usage": "watts",
    "trtkit_gpu_utilization": "GPU busy",
    "trtkit_gpu_power_watts": "watts",
}  # fmt: skip
"""Series of a metrics page that are shown: family, with the value of a label where it has several."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What the client tells of one moment."""

    seconds: float
    """Since the run began."""
    ended: int
    failed: int
    running: int
    pieces: int
    """Pieces of text since the last telling."""
    firsts: tuple[float, ...]
    """Seconds to the first token, of requests whose first came since then."""
    paces: tuple[float, ...]
    """Mean seconds a piece since then, of each stream that got some."""
    page: str = ""
    """The newest line of the scraper, as it was written."""

    def line(self) -> str:
        """Return it as one line."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, separators=(",", ":"))

    @property
    def words(self) -> str:
        """Say it in a plain line."""
        return f"{self.ended:,} ended, {self.failed:,} failed, {self.running:,} under way"


def read_glance(line: str) -> Glance:
    """Return what a line holds; raises ``ValueError`` for any other line."""
    told = json.loads(line)
    if not isinstance(told, dict) or told.keys() != set(Glance.__slots__):
        raise ValueError("no glance")
    return Glance(**told | {"firsts": tuple(told["firsts"]), "paces": tuple(told["paces"])})


class Watch:
    """Sees what came since it last looked; a look takes a time that grows with the streams under way alone."""

    def __init__(self) -> None:
        """Begin before the first request."""
        self._seen: dict[int, tuple[int, float]] = {}

    def look(self, under_way: Iterable[tuple[int, float, Heard]]) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
        """Take number, due time on the client's clock and answer of each request that may have got something.

        Return pieces, first tokens and paces since the last look.
        """
        pieces, firsts, paces, seen = 0, [], [], {}
        for number, due, heard in under_way:
            count, last = self._seen.get(number, (0, 0.0))
            stamps = heard.stamps
            now = len(stamps)
            if now and not count:
                firsts.append(stamps[0] - due)
                count, last = 1, stamps[0]
                pieces += 1
            if now > count:
                paces.append((stamps[-1] - last) / (now - count))
                pieces += now - count
            if now:
                seen[number] = now, stamps[-1]
        self._seen = seen
        return pieces, tuple(firsts), tuple(paces)


class View:
    """What is shown of a run: figures since its begin, and the last minute in bars."""

    def __init__(self, title: str) -> None:
        """Begin; ``title`` stands above all."""
        self._title = title
        self._now: Glance | None = None
        self._firsts = Histogram()
        self._paces = Histogram()
        self._lines: dict[str, deque[float | None]] = {}
        self._server: dict[str, deque[float | None]] = {}

    def take(self, glance: Glance) -> None:
        """Take what the client told."""
        before = self._now.seconds if self._now is not None else 0.0
        passed = max(glance.seconds - before, 1e-3)
        self._now = glance
        for histogram, values in ((self._firsts, glance.firsts), (self._paces, glance.paces)):
            for value in values:
                histogram.add(value)
        self._add("pieces/s", glance.pieces / passed)
        self._add("under way", glance.running)
        self._add("first token", _middle(glance.firsts))
        self._add("later tokens", _middle(glance.paces))
        for name, value in _told(glance.page).items():
            self._server.setdefault(name, deque(maxlen=SECONDS)).append(value)

    def _add(self, name: str, value: float | None) -> None:
        self._lines.setdefault(name, deque(maxlen=SECONDS)).append(value)

    def rows(self) -> Iterator[str]:
        """Yield the lines of the screen."""
        now = self._now
        yield self._title
        if now is None:
            yield "nothing was sent yet"
            return
        failed = f", {now.failed:,} failed" if now.failed else ""
        yield f"{now.seconds:,.0f} s: {counted(now.ended, 'request')} ended{failed}, {now.running:,} under way"
        yield ""
        for name in ("pieces/s", "under way"):
            yield _bar_line(name, self._lines[name], f"{self._lines[name][-1] or 0:,.0f}")
        for name, histogram in (("first token", self._firsts), ("later tokens", self._paces)):
            told = "  ".join(f"p{share:g} {_ms(histogram.at(share / 100))}" for share in (50, 90, 99))
            yield _bar_line(name, self._lines[name], told if histogram.count else "none yet")
        if self._server:
            yield ""
            yield "server"
        for name, values in self._server.items():
            yield _bar_line(name, values, _number(name, values[-1]))
        yield ""
        yield "first tokens"
        yield from _distribution(self._firsts)


def _bar_line(name: str, values: Sequence[float | None], told: str) -> str:
    return f"{name:<{_NAME}}{sparkline(list(values), low=0.0):<{SECONDS}}  {told}"


def _distribution(histogram: Histogram) -> Iterator[str]:
    """Yield a bar for each bucket from the first that holds something to the last."""
    counts, below = [], 0.0
    for edge in (*_EDGES, float("inf")):
        counts.append((edge, round((_share_to(histogram, edge) - below) * histogram.count)))
        below = _share_to(histogram, edge)
    held = [place for place, (_, count) in enumerate(counts) if count]
    most = max((count for _, count in counts), default=0)
    for edge, count in counts[held[0] : held[-1] + 1] if held else ():
        name = f"up to {_ms(edge)}" if edge != float("inf") else f"above {_ms(_EDGES[-1])}"
        yield f"{name:<{_NAME}}{'█' * round(BARS * count / most) or '▏'} {count:,}"


def _share_to(histogram: Histogram, edge: float) -> float:
    """Return the share of the values up to an edge."""
    share = 0.0
    for value, upto in histogram.curve(10_000) if histogram.count else ():
        if value > edge:
            break
        share = upto
    return share


def _told(page: str) -> Mapping[str, float]:
    """Return the series that are shown, of a scraper's line: the mean over GPUs, the sum over models."""
    try:
        reading = json.loads(page) if page else {}
    except ValueError:
        return {}
    found: dict[str, list[float]] = {}
    for series, value in reading.get("values", {}).items():
        family, _, labels = series.partition("{")
        values = [part.split('"')[1] for part in labels.split(",") if '"' in part]
        names = [f"{family}{{{one}}}" for one in values] + [family]
        shown = next((SERVER[name] for name in names if name in SERVER), None)
        if shown is not None and isinstance(value, int | float):
            found.setdefault(shown, []).append(float(value))
    return {name: sum(values) if name in ("waiting", "active") else _mean(values) for name, values in found.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _middle(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _number(name: str, value: float | None) -> str:
    if value is None or value != value:  # noqa: PLR0124  # not a number is told as such
        return "unknown"
    return f"{value:.0%}" if name in ("KV cache used", "GPU busy") else f"{value:,.0f}"


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def title_of(asked: Mapping[str, Any], place: str) -> str:
    """Say what runs, in a line."""
    load = f"{asked['rate']:g} requests/s" if asked.get("rate") else counted(asked.get("concurrency") or 1, "user")
    what = (
        asked.get("scenario") or asked.get("trace") or f"{asked.get('isl') or 512} + {asked.get('osl') or 128} tokens"
    )
    return f"trtkit bench {place}: {load}, {what}, {counted(asked['requests'], 'request')} in all; Ctrl-C ends it"
