"""The parser of the Prometheus text format, against prometheus-client's and against garbage."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.health.support import PAGES, answers, page, page_files, sends, stub_server
from trtllm_kit.health.snapshot import Labels, Outcome
from trtllm_kit.health.sources import prometheus_text
from trtllm_kit.health.sources.prometheus_text import MAX_LINE, MAX_SERIES, parse, scrape

Series = dict[tuple[str, Labels], tuple[float | None, float | None]]


def ours(text: str) -> Series:
    """Read a page with our parser, as {series: (value, seconds)} with None for NaN."""
    taken = parse(text)
    assert not taken.problem
    return {
        (family, labels): (comparable(value), taken.timestamps.get(family, {}).get(labels))
        for family, rows in taken.series.items()
        for labels, value in rows.items()
    }


def theirs(text: str) -> Series:
    """Read a page with prometheus-client's parser, its ``_total`` on counters taken off again."""
    series: Series = {}
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            added = metric.type == "counter" and f"\n{sample.name}" not in f"\n{text}"
            name = sample.name.removesuffix("_total") if added else sample.name
            series[name, tuple(sorted(sample.labels.items()))] = (comparable(sample.value), sample.timestamp)
    return series


def comparable(value: float) -> float | None:
    """Make NaN equal to itself."""
    return None if math.isnan(value) else float(value)


@pytest.mark.parametrize("path", page_files(), ids=lambda path: path.stem)
def test_agrees_with_prometheus_client_on_every_page(path: Path) -> None:
    """Both parsers find the same series, values and time stamps."""
    text = path.read_text("utf-8")
    assert theirs(text) == ours(text)


@pytest.mark.parametrize("path", sorted((PAGES / "wrong").iterdir()), ids=lambda path: path.stem)
def test_every_wrong_page_is_garbage(path: Path) -> None:
    """A page that is not of the format is garbage with a reason, and none of its series is kept."""
    body = path.read_bytes()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with stub_server(sends(head + body)) as url:
        taken = scrape(url, 2.0)
    assert (Outcome.GARBAGE, {}) == (taken.outcome, taken.series)
    assert taken.reason


def test_escapes_in_label_values_are_undone() -> None:
    """Backslash, quote and newline come back as themselves, and other text keeps its braces, commas and signs."""
    (labels,) = parse(page("every-freedom")).series["odd_escapes"]
    assert {"path": "C:\\DIR\\new", "quote": 'say "hi"', "line": "one\ntwo", "brace": "}{,=#"} == dict(labels)


def test_time_stamps_are_milliseconds() -> None:
    """A time stamp on the page is milliseconds and seconds in the snapshot."""
    assert {(("a", "x"),): 1795993418.603} == parse(page("every-freedom")).timestamps["odd_time"]


def test_an_exemplar_is_skipped() -> None:
    """What OpenMetrics puts behind a hash sign does not change the value."""
    assert {(("le", "1"),): 3.0} == parse('a_bucket{le="1"} 3 # {trace_id="x"} 0.5 1.5\n').series["a_bucket"]


def test_a_wrong_line_is_named() -> None:
    """The reason tells which line is wrong and how it reads."""
    assert "line 2 reads 'b oops'" in parse("a 1\nb oops\n").problem


@settings(max_examples=1000, deadline=2000)
@given(st.text())
def test_arbitrary_text_never_raises(text: str) -> None:
    """Any text is either a page with series or a problem without."""
    taken = parse(text)
    assert bool(taken.problem) is not bool(taken.series)


_ALPHABET = st.text(alphabet='ab_: \t{}",=\\n#\n10.eE+-NaIf', max_size=80)


@settings(max_examples=2000, deadline=2000)
@given(_ALPHABET)
def test_text_of_the_formats_own_characters_never_raises(text: str) -> None:
    """Text made of the format's own characters is a page or a problem; what we accept, prometheus-client accepts."""
    taken = parse(text)
    assert bool(taken.problem) is not bool(taken.series)
    if taken.series and "#" not in text:
        assert theirs(text) == ours(text)


@settings(max_examples=500, deadline=2000)
@given(st.data())
def test_what_was_read_before_changes_nothing(data: st.DataObject) -> None:
    """A page is read the same whether all, or none, of what stands in front of its numbers was seen before."""
    text = page("triton-2.51-simulated-busy-1")
    parse(text)
    start, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 20))
    changed = text[:start] + data.draw(_ALPHABET) + text[start + length :]
    seen = parse(changed)
    prometheus_text._KNOWN.clear()
    unseen = parse(changed)
    assert (unseen.problem, unseen.timestamps) == (seen.problem, seen.timestamps)
    assert repr(unseen.series) == repr(seen.series)


@pytest.mark.parametrize("number", ["1_0", " 1", "1\t", "0x1", "1e", "infinit", "١", ""])
def test_no_number_is_none_behind_what_was_seen(number: str) -> None:
    """What Python reads as a number and the format does not is refused behind a known series too."""
    assert not parse("seen 1\n").problem
    taken = parse(f"seen {number}x\n"), parse(f"seen {number}\n")
    assert taken[0].problem
    assert bool(taken[1].problem) is (number.strip() != "1")


def test_what_is_kept_of_pages_is_bounded() -> None:
    """After many pages of other names no more is kept than of a few."""
    for number in range(20):
        parse("".join(f"a{number}_{one} 1\n" for one in range(1000)))
    assert len(prometheus_text._KNOWN) <= prometheus_text._MOST_KNOWN + 1000


@settings(max_examples=300, deadline=2000)
@given(st.data())
def test_a_mutated_real_page_never_raises(data: st.DataObject) -> None:
    """A real page with a piece cut out or something put in is a page or a problem."""
    text = page("triton-2.51-simulated-busy-1")
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    taken = parse(text[:start] + data.draw(_ALPHABET) + text[start + length :])
    assert bool(taken.problem) is not bool(taken.series)


@pytest.mark.parametrize(
    "line",
    [
        "a" * 1_000_000,
        "a{" + '"' * 1_000_001,
        'a{x="' + "\\" * 1_000_001,
        "a{" + "b" * 1_000_000,
        "a{" + 'b="c",' * 200_000,
        "a " + "1" * 1_000_000 + "x",
        "a" + " " * 1_000_000 + "{",
        "a 1" + " " * 1_000_000 + "!",
        "a{" + 'b="' * 300_000,
        " " * 1_000_000 + "!",
    ],
    ids=lambda line: line[:8],
)
def test_no_line_takes_more_than_linear_time(line: str) -> None:
    """A megabyte that almost matches is refused within seconds; backtracking would take hours."""
    start = time.monotonic()
    assert parse(line + "\n").problem
    assert time.monotonic() - start < 5.0


def test_ten_thousand_series_are_parsed_faster_than_by_prometheus_client() -> None:
    """A large page costs less than the reference parser takes for it in the same run."""
    text = "".join(f'family_{n % 100}{{model="m",instance="{n}",version="1"}} {n}.5\n' for n in range(10_000))
    assert 10_000 == sum(len(rows) for rows in parse(text).series.values())
    assert fastest(lambda: parse(text)) < fastest(lambda: list(text_string_to_metric_families(text)))


def fastest(work: Callable[[], object]) -> float:
    """Return the least CPU time of three runs, seconds."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("".join(f'a{{x="{n}"}} 1\n' for n in range(MAX_SERIES + 1)), f"more than {MAX_SERIES} series"),
        ("# " + "x" * MAX_LINE + "\na 1\n", f"line 1 is longer than {MAX_LINE} characters"),
    ],
    ids=["series", "line"],
)
def test_a_page_beyond_the_bounds_is_too_much(text: str, reason: str) -> None:
    """One series or one character above the bound and none of the page is used; the reason names the bound."""
    taken = parse(text)
    assert (Outcome.TOO_MUCH, {}) == (taken.outcome, taken.series)
    assert reason in taken.problem


def test_a_page_at_the_bounds_is_read() -> None:
    """As many series as the bound allows, and a line as long, are read whole."""
    text = "".join(f'a{{x="{n}"}} 1\n' for n in range(MAX_SERIES)) + "#" * MAX_LINE + "\n"
    assert MAX_SERIES == len(parse(text).series["a"])


def test_parsing_ends_at_the_time_out() -> None:
    """Fifteen megabytes of empty lines arrive at once and take seconds to read: given up in time, not called dead."""
    body = b"a 1\n" + b"\n" * (15 << 20)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with stub_server(sends(head + body)) as url:
        start = time.monotonic()
        taken = scrape(url, 1.0)
    assert time.monotonic() - start < 2.0
    assert (Outcome.TOO_MUCH, {}) == (taken.outcome, taken.series)
    assert "the time was over at line" in taken.reason


def test_the_deadline_is_looked_at_while_parsing() -> None:
    """A deadline that is over stops the parser at once, with the line in the reason."""
    taken = parse(page("triton-2.51-simulated-idle"), time.monotonic() - 1)
    assert (Outcome.TOO_MUCH, {}) == (taken.outcome, taken.series)
    assert "the time was over at line 1" in taken.problem


def test_a_scrape_holds_both_clocks_and_its_duration() -> None:
    """A good scrape carries wall clock, monotonic clock, duration, status and the series."""
    before, wall = time.monotonic(), time.time()
    with stub_server(answers(page("triton-2.51-simulated-idle"))) as url:
        taken = scrape(url, 2.0)
    assert (Outcome.OK, "", 200) == (taken.outcome, taken.reason, taken.status)
    assert before <= taken.monotonic_seconds <= time.monotonic()
    assert abs(taken.wall_seconds - wall) < 5
    assert 0 < taken.scrape_seconds < 2
    assert 57 == sum(len(rows) for rows in taken.series.values())
