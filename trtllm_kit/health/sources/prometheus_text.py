"""The Prometheus text format 0.0.4, read strictly: a page is understood whole or not at all, within the bounds.

Source: the exposition formats page of the Prometheus documentation. Every pattern is possessive, so the time to read
a page is proportional to its length whatever it holds. Exemplars of OpenMetrics are skipped; comments are not needed.
"""

from __future__ import annotations

import math
import re
import time

from trtllm_kit.health.access import ANYBODY, Access
from trtllm_kit.health.snapshot import Labels, Outcome, Snapshot
from trtllm_kit.health.sources.http_answer import MAX_BYTES, Answer
from trtllm_kit.health.sources.http_get import get
from trtllm_kit.light import dataclass

MAX_SERIES = 20_000
"""Most series that are read: a server of a hundred models has some thousand, and every check looks at each of them."""
MAX_LINE = 1 << 16
"""Longest line, characters."""
_STRING = r'"(?:[^"\\\n]++|\\[\\"n])*+"'
_NUMBER = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_VALUE = rf"{_NUMBER}|[+-]?(?i:inf(?:inity)?)|(?i:nan)"
_SAMPLE = re.compile(
    r"[ \t]*+([a-zA-Z_:][a-zA-Z0-9_:]*+)"
    rf'(?:[ \t]*+\{{((?:[^"}}\\]++|{_STRING})*+)\}}[ \t]*+|[ \t]++)'
    rf"({_VALUE})"
    r"(?:[ \t]++(-?[0-9]++))?"
    r"(?:[ \t]++#.*+)?[ \t]*+",
    re.ASCII,
)
_ALONE = re.compile(_VALUE, re.ASCII)
_LABEL = re.compile(rf"[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+({_STRING})[ \t]*+(?:,[ \t]*+|$)", re.ASCII)
_ESCAPE = re.compile(r'\\([\\"n])')


@dataclass(frozen=True)
class Page:
    """A page taken apart; with a ``problem`` there are no series."""

    series: dict[str, dict[Labels, float]]
    timestamps: dict[str, dict[Labels, float]]
    """Seconds since 1970, for the series that carry a time stamp."""
    problem: str = ""
    outcome: Outcome = Outcome.OK


class _Wrong(Exception):
    """A line that is not of the format."""


class _TooMuch(Exception):
    """A page beyond the bounds."""


def scrape(
    url: str,
    timeout_seconds: float,
    max_bytes: int = MAX_BYTES,
    before: Snapshot | None = None,
    access: Access = ANYBODY,
) -> Snapshot:
    """Read a metrics page into a snapshot; whatever goes wrong is in the snapshot's outcome and reason.

    A page of trtllm-serve's iteration records gives each record once; where there is no new one, those of the sample
    ``before`` stand. The time bounds fetching and parsing together. A page that arrived in time and could not be
    parsed in it is no sign of a dead server, so it has an outcome of its own.
    """
    wall, start = time.time(), time.monotonic()
    answer = get(url, timeout_seconds, max_bytes, access=access)
    return sample_of(answer, wall, start, start + timeout_seconds, before)


def sample_of(answer: Answer, wall: float, start: float, deadline: float, before: Snapshot | None) -> Snapshot:
    """Return what an answer tells: asked for at ``start``, and to be parsed until ``deadline`` (monotonic, seconds)."""
    page = _page(answer, deadline, before)
    return Snapshot(
        outcome=page.outcome,
        reason=answer.reason or page.problem,
        wall_seconds=wall,
        monotonic_seconds=start,
        scrape_seconds=time.monotonic() - start,
        status=answer.status,
        series=page.series,
        timestamps=page.timestamps,
    )


def _page(answer: Answer, deadline: float, before: Snapshot | None) -> Page:
    if answer.outcome is not Outcome.OK:
        return Page({}, {}, outcome=answer.outcome)
    if answer.body.lstrip()[:1] == b"[":
        return _iterations(answer.body, before)
    try:
        return parse(answer.body.decode("utf-8"), deadline)
    except UnicodeDecodeError:
        return _garbage("the answer is not UTF-8 text")


def parse(text: str, deadline: float = math.inf) -> Page:
    """Take a page apart. A wrong line, a series given twice, a page cut off or without any series is a problem.

    So are more than ``MAX_SERIES`` series, and a ``deadline`` (monotonic clock, seconds) that passes before the end.
    """
    page = Page({}, {})
    try:
        _fill(page, text, deadline)
    except _Wrong as error:
        return _garbage(f"the answer is not a metrics page: {error}")
    except _TooMuch as error:
        return Page({}, {}, f"the metrics page is too much to read: {error}", Outcome.TOO_MUCH)
    if not page.series:
        return _garbage("the answer holds no metrics")
    if not text.endswith("\n"):
        return _garbage("the metrics page is cut off: its last line does not end")
    return page


def _iterations(body: bytes, before: Snapshot | None) -> Page:
    from trtllm_kit.health.sources.iteration_stats import kept_records, read_records

    series, problem = read_records(body)
    stamps: dict[str, dict[Labels, float]] = {}
    if not series and not problem and before is not None and before.ok:
        series, stamps = kept_records(before)
    if not series:
        return _garbage(problem or "the list of iterations is empty: none was made, or enable_iter_perf_stats is off")
    return Page(series, stamps)


def _garbage(problem: str) -> Page:
    return Page({}, {}, problem, Outcome.GARBAGE)


_Key = tuple[str, Labels]
_KNOWN: dict[str, _Key] = {}
"""What stood in front of the numbers of earlier pages: the next page of a server, or of one like it, has the same."""
_MOST_KNOWN = 4096


def _fill(page: Page, text: str, deadline: float) -> None:
    """Put every series of a text into a page; raises ``_Wrong`` and ``_TooMuch``."""
    if len(_KNOWN) > _MOST_KNOWN:
        _KNOWN.clear()
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if time.monotonic() > deadline or len(line) > MAX_LINE:
            raise _beyond(line, number)
        if line[:1] == "#":
            continue
        front, _, end = line.rpartition(" ")
        key = _KNOWN.get(front)
        stamp = None
        if key is None or _ALONE.fullmatch(end) is None:
            match = _SAMPLE.fullmatch(line)
            if match is None:
                _refuse(line, number)
                continue
            key, end, stamp = _read(match, front, number)
        count += 1
        if count > MAX_SERIES:
            raise _TooMuch(f"it holds more than {MAX_SERIES} series")
        family, labels = key
        series = page.series.setdefault(family, {})
        if labels in series:
            raise _Wrong(f"{family} is given twice with the same labels")
        series[labels] = float(end)
        if stamp is not None:
            page.timestamps.setdefault(family, {})[labels] = float(stamp) / 1e3


def _beyond(line: str, number: int) -> _TooMuch:
    if len(line) > MAX_LINE:
        return _TooMuch(f"line {number} is longer than {MAX_LINE} characters")
    return _TooMuch(f"the time was over at line {number}")


def _refuse(line: str, number: int) -> None:
    """Raise ``_Wrong`` for a line that is neither a sample nor empty nor a comment."""
    if line.strip(" \t") and not line.lstrip(" \t").startswith("#"):
        raise _Wrong(f"line {number} reads {line[:60]!r}")


def _read(match: re.Match[str], front: str, number: int) -> tuple[_Key, str, str | None]:
    """Return family and labels, value, and time stamp of a sample; ``front`` is what stands before its last blank."""
    family, label_text, value, stamp = match.groups()
    key = (family, _labels(label_text, number) if label_text is not None else ())
    if match.end(3) == len(match.string) and match.start(3) == len(front) + 1:
        _KNOWN[front] = key
    return key, value, stamp


def _labels(text: str, number: int) -> Labels:
    """Read what stands between the braces; a comma may follow the last label."""
    labels: dict[str, str] = {}
    place = 0
    text = text.strip(" \t")
    while place < len(text):
        match = _LABEL.match(text, place)
        if match is None or match[1] in labels:
            raise _Wrong(f"line {number} has wrong labels {text[:60]!r}")
        value = match[2][1:-1]
        labels[match[1]] = _ESCAPE.sub(_unescaped, value) if "\\" in value else value
        place = match.end()
    return tuple(sorted(labels.items()))


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
