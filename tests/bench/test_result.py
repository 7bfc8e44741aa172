"""A run as a document, in a history, shown, and held against another."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench.support import record
from trtllm_kit.bench.compare import compare, gate_of
from trtllm_kit.bench.figures import Figures, figures_of
from trtllm_kit.bench.history import place_in, read_result, results_in, write_result
from trtllm_kit.bench.lag import Lag
from trtllm_kit.bench.page import page_of
from trtllm_kit.bench.record import Failure
from trtllm_kit.bench.report import csv_of, notes
from trtllm_kit.bench.result import Worth, document_of
from trtllm_kit.bench.run import steps_document
from trtllm_kit.bench.saturation import most_of, saturation
from trtllm_kit.bench.strict import require_result
from trtllm_kit.errors import RequestFailed, ResultUnfit, UsageError
from trtllm_kit.estimate.outcome import Slo

GOOD = Lag(0.0001, 0.001, 0.002, 0.0, 0.2)
BUSY = Lag(0.0001, 0.001, 0.002, 0.0, 0.97)


def result(scale: float = 1.0, lag: Lag = GOOD, **asked: Any) -> dict[str, Any]:
    """Return the document of a run whose times are scaled."""
    records = [record(n, n * 1.0, tuple(n + scale * t for t in (0.1, 0.2, 0.4))) for n in range(20)]
    records.append(record(20, 20.0, (), failure=Failure.BROKEN, why="=cut <b>", ended=20.1))
    figures = figures_of(records, Slo(ttft=0.15))
    return document_of({"requests": 21} | asked, [figures], figures, lag, records, Worth(2, 3.0))


def test_a_price_is_that_of_the_gpus_for_a_million_tokens() -> None:
    """Two GPUs at 3 an hour and 1,000 tokens a second: 6 / 3.6 a million, 500 tokens/s of each."""
    assert {
        "output_tokens_per_second_per_gpu": 500.0,
        "cost_per_million_output_tokens": pytest.approx(6 / 3.6),
    } == Worth(2, 3.0).of(1000.0)
    assert {} == Worth().of(1000.0)


def test_a_history_keeps_every_run(tmp_path: Path) -> None:
    """Two runs of one second have two names; what is read is what was written; another file is told of."""
    for _ in range(2):
        write_result(place_in(tmp_path, "a b/c", "20260101T000000"), result())
    (tmp_path / "zzz.bench.json").write_text("{}")
    found = list(results_in(tmp_path))
    assert [True, True, False] == [document is not None for _, document in found]
    assert result()["figures"] == found[0][1]["figures"]  # type: ignore[index]
    with pytest.raises(ResultUnfit):
        read_result(tmp_path / "zzz.bench.json")


def test_a_slower_run_breaks_the_gate() -> None:
    """Times half as long again are past 10 %; the same run is past nothing, a faster one neither."""
    gate = gate_of("ttft.p99=10%,e2e.p50=10%")
    assert {"ttft.p99", "e2e.p50"} == {row.name for row in compare(result(), result(1.5), gate).broken}
    assert () == compare(result(), result(), gate).broken
    assert () == compare(result(), result(0.5), gate).broken


def test_a_figure_that_was_nothing_breaks_the_gate_when_it_is_something() -> None:
    """From 0 to anything is worse by more than every limit, and its change is no number of JSON."""
    first = result()
    first["figures"]["latencies"]["gap"]["p50"] = 0.0
    compared = compare(first, result(), gate_of("gap.p50=99%"))
    assert ["gap.p50"] == [row.name for row in compared.broken]
    assert None is next(row["change"] for row in compared.document()["rows"] if row["name"] == "gap.p50")


def test_fewer_answers_break_their_gate() -> None:
    """A run that answers 20 of 21 is within 10 % of itself; one that answers 10 of 21 is not, however fast it is."""
    fewer = result(0.5)
    fewer["figures"]["answered"] = 10
    gate = gate_of("answered_share=10%")
    assert () == compare(result(), result(0.5), gate).broken
    assert ["answered_share"] == [row.name for row in compare(result(), fewer, gate).broken]


def test_runs_without_a_figure_are_not_compared() -> None:
    """Nothing in common is no pass."""
    empty = result() | {"figures": {"asked": 0, "answered": 0, "latencies": {}}}
    with pytest.raises(ResultUnfit):
        compare(result(), empty, {})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("repeats",), None),
        (("figures", "answered"), None),
        (("figures", "output_tokens_per_second"), "7"),
        (("figures", "latencies"), {"ttft": {"count": 1, "p50": "1 s"}}),
        (("figures", "failures"), []),
        (("figures", "seconds"), -1.0),
        (("client",), {"busy": 0.1}),
        (("requests",), ["one"]),
    ],
)
def test_a_document_with_a_hole_is_no_result(path: tuple[str, ...], value: Any) -> None:
    """What is missing or of another kind is told when it is read, and not when it is shown."""
    document = result()
    held = document if len(path) == 1 else document[path[0]]
    held[path[-1]] = value
    with pytest.raises(ValueError, match=path[-1]):
        require_result(document)


def test_a_repeat_without_answers_is_in_no_interval() -> None:
    """A repeat of failures alone has no latency, and does not pull the mean of them towards 0."""
    good = figures_of([record()])
    none = figures_of([record(stamps=(), failure=Failure.STATUS, ended=1.0)])
    document = document_of({}, [good, none], good, GOOD, [], Worth())
    assert "ttft.p50" not in document["repeats"]
    assert "requests_per_second" in document["repeats"]


def test_less_throughput_breaks_the_gate() -> None:
    """For rates less is worse: half the tokens a second for a user is past 20 %, twice as many is not."""
    gate = gate_of("user_tokens_per_second=20%")
    assert ["user_tokens_per_second"] == [row.name for row in compare(result(), result(2.0), gate).broken]
    assert () == compare(result(), result(0.5), gate).broken


def test_a_comparison_tells_of_other_loads_and_doubts() -> None:
    """Runs of different loads, failed requests and a client that was the bottleneck are named."""
    compared = compare(result(rate=1), result(rate=2, lag=BUSY), {})
    assert ("rate: 1 and 2",) == compared.differences
    assert 3 == len(compared.doubts)
    assert any("bottleneck" in doubt for doubt in compared.doubts)


@pytest.mark.parametrize("text", ["ttft=5%", "ttft.p98=5%", "ttft.p99", "speed=1%"])
def test_a_gate_on_no_figure_is_refused(text: str) -> None:
    """A gate names a figure and a share."""
    with pytest.raises(UsageError):
        gate_of(text)


def test_the_page_is_whole_and_escapes_what_a_server_said() -> None:
    """The page is well-formed, draws its plots, asks for nothing from elsewhere, and no text of a server is markup."""
    page = page_of(result(lag=BUSY), "a <run>")
    assert "<b>" not in page
    assert "http" not in page
    ElementTree.fromstring(page.replace("<!doctype html>", "").replace('<meta charset="utf-8">', ""))
    assert page.count("<svg") == 2
    assert "bottleneck" in page


def test_the_page_draws_the_cache_beside_first_tokens() -> None:
    """Readings of the server's cache and queue are plots of their own, on the run's seconds."""
    family = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="
    series = {f'{family}"{kind}"}}': [1.0, 5.0] for kind in ("used", "free", "max", "fraction")}
    server = {"seconds": [0.0, 1.0], "series": series, "failed": 0, "reason": ""}
    page = page_of(result() | {"server": server}, "run")
    assert 3 == page.count("<svg")
    assert all(f"type=&quot;{kind}&quot;}}</text>" in page for kind in ("used", "free", "max", "fraction"))
    last = [plot.split(' text-anchor="end">')[-2].split("<")[0] for plot in page.split("</svg>")[1:3]]
    assert ["20.1", "20.1"] == last


def test_csv_has_every_request_and_no_formula() -> None:
    """One line a request; a text that begins like a formula is quoted for spreadsheets."""
    rows = list(csv.DictReader(io.StringIO(csv_of(result()))))
    assert (21, "broken", "'=cut <b>") == (len(rows), rows[-1]["failure"], rows[-1]["why"])


def test_notes_name_what_a_reader_must_know() -> None:
    """Failures by kind, the bottleneck and the share that kept the SLO are said."""
    said = "\n".join(notes(result(lag=BUSY)))
    assert "1 broken" in said
    assert "WARNING" in said
    assert "95.2%" in said


@pytest.mark.parametrize(
    ("lag", "told"),
    [(GOOD, False), (BUSY, True), (Lag(0.0006, 0.002, 0.1, 0, 0.1), True), (Lag(0, 0.0026, 0.1, 0, 0.1), True),
     (Lag(0, 0.001, 0.1, 0.02, 0.1), True)],
)  # fmt: skip
def test_a_client_that_was_late_says_so(lag: Lag, told: bool) -> None:
    """Beyond 0.5 ms at the median, 2.5 ms at p99, or a full core, the client is named as the bottleneck."""
    assert told is bool(lag.bottleneck)


def figures_at(rate: float) -> Figures:
    """Return figures of a rate of tokens a second."""
    return figures_of([record(stamps=tuple(place / rate for place in range(1, 101)))])


def test_saturation_is_where_users_bring_no_more() -> None:
    """A server that takes 800 tokens/s, 100 a user, is saturated with 8 users; 16 bring nothing."""
    steps = saturation(lambda users: figures_at(min(100.0 * users, 800.0)))
    assert ([1, 2, 4, 8, 16], 800) == ([step.users for step in steps], round(most_of(steps).output_tokens_per_second))


def test_a_server_that_takes_every_user_is_not_said_to_be_saturated() -> None:
    """Throughput that grows up to the most users asks for a warning; one that stops growing does not."""
    grows = saturation(lambda users: figures_at(100.0 * users))
    stops = saturation(lambda users: figures_at(min(100.0 * users, 800.0)))
    told = ["lies beyond" in "\n".join(notes(result() | steps_document(steps, 0.5))) for steps in (grows, stops)]
    assert ([True, False], 4096) == (told, grows[-1].users)


def test_no_saturation_without_an_answer() -> None:
    """A server that answers nobody has none."""
    with pytest.raises(RequestFailed):
        saturation(lambda _: figures_of([record(stamps=(), failure=Failure.STATUS, ended=1.0)]))
