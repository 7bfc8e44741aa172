"""Histograms, and what is computed of records."""

from __future__ import annotations

from random import Random

import pytest

from tests.bench.support import record
from trtllm_kit.bench.figures import confidence, figures_of, merged
from trtllm_kit.bench.histogram import Histogram, read_histogram
from trtllm_kit.bench.record import Failure
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.estimate.spread import percentile


def test_percentiles_are_within_two_per_mille_of_the_exact_ones() -> None:
    """Over five decades a bucket's middle is near the nearest-rank value, and the ends are exact."""
    random = Random(3)
    values = [10 ** random.uniform(-5, 0) for _ in range(5000)]
    histogram = Histogram(values)
    for share in (0.001, 0.5, 0.9, 0.99, 0.999):
        exact = percentile(((value, 1) for value in values), share)
        assert exact == pytest.approx(histogram.at(share), rel=0.002)
    assert (max(values), min(values)) == (histogram.most, histogram.least)
    assert sum(values) / len(values) == pytest.approx(histogram.mean)


def test_merged_histograms_are_that_of_all_values() -> None:
    """Adding one to another gives what adding its values gives."""
    a, b = Histogram([0.0, 0.5, 2.0]), Histogram([0.1])
    a.merge(b)
    whole = Histogram([0.0, 0.5, 2.0, 0.1])
    assert (whole.buckets, whole.count, whole.least, whole.most) == (a.buckets, a.count, a.least, a.most)
    assert whole.mean == pytest.approx(a.mean)


def test_a_histogram_survives_its_document() -> None:
    """What is read is what was written; counts that do not add up are refused."""
    document = Histogram([0.0, 0.25, 1.5]).document()
    assert document == read_histogram(document).document()
    with pytest.raises(ValueError, match="add up"):
        read_histogram(document | {"count": 9})


def test_latencies_count_from_when_a_request_was_due() -> None:
    """A request that was sent two seconds late has those in its first token: no omission is coordinated."""
    figures = figures_of([record(intended=1.0, sent=3.0, stamps=(4.0, 4.5))])
    assert 3.0 == pytest.approx(figures.histograms["ttft"].at(0.5))
    assert 2.0 == pytest.approx(figures.histograms["late"].at(0.5))


def test_each_latency_by_its_definition() -> None:
    """First token, mean of the later ones, gaps each by itself, the whole, and the whole over all tokens."""
    figures = figures_of([record(stamps=(1.0, 1.5, 3.0))])
    held = {name: one.at(1.0) for name, one in figures.histograms.items()}
    expected = {"ttft": 1.0, "tpot": 1.0, "gap": 1.5, "e2e": 3.0, "tpot_with_first": 1.0, "late": 0.0}
    assert expected == pytest.approx(held)
    assert 2 == figures.histograms["gap"].count


def test_tokens_beyond_pieces_count_in_tpot_and_not_in_gaps() -> None:
    """An answer of nine tokens in three pieces has a TPOT over nine and two gaps."""
    figures = figures_of([record(stamps=(1.0, 2.0, 3.0), answer=9)])
    assert (0.25, 2) == (pytest.approx(figures.histograms["tpot"].at(0.5)), figures.histograms["gap"].count)


def test_failed_and_warm_requests_are_in_no_latency() -> None:
    """A broken answer is counted by its kind, a warm one not at all; the percentiles are those of the good ones."""
    bad = record(1, stamps=(9.0,), failure=Failure.BROKEN, why="cut", ended=9.0)
    figures = figures_of([record(0), bad, record(2, stamps=(7.0, 8.0), warm=True)], Slo(ttft=2.0))
    assert (2, 1, {"broken": 1}, ("cut",)) == (figures.asked, figures.answered, figures.failures, figures.why)
    assert (1.0, 0.5, 0.5) == (figures.histograms["ttft"].most, figures.kept_share, figures.failed_share)


def test_goodput_counts_answers_that_kept_every_limit() -> None:
    """Of two answers in ten seconds one is late: goodput is 0.1 a second."""
    figures = figures_of([record(0, stamps=(1.0, 10.0)), record(1, stamps=(5.0, 6.0))], Slo(ttft=2.0))
    assert (0.1, 0.2) == (figures.goodput, figures.requests_per_second)


def test_speed_to_the_nth_token_leaves_shorter_answers_out() -> None:
    """From the first to the third token in half a second is four a second; an answer of two has no third."""
    figures = figures_of([record(stamps=(1.0, 1.25, 1.5, 9.0)), record(1, stamps=(1.0, 2.0))], nth=3)
    assert (4.0, 1) == (figures.nth_tokens_per_second, figures.nth_answers)


def test_repeats_are_added_up() -> None:
    """Two repeats have both their requests and their seconds, so rates stay those of one."""
    one = figures_of([record(stamps=(1.0, 2.0))])
    both = merged([one, one])
    assert (2, 4.0, one.output_tokens_per_second) == (both.answered, both.seconds, both.output_tokens_per_second)


def test_confidence_of_repeats() -> None:
    """Three repeats of 1, 2, 3 have the mean 2 ± 4.30 / sqrt(3) (Student, two degrees of freedom); one has none."""
    mean, half = confidence([1.0, 2.0, 3.0])
    assert (2.0, 4.30 / 3**0.5) == pytest.approx((mean, half))
    assert (5.0, 0.0) == confidence([5.0])
