"""What is asked of a search."""

from __future__ import annotations

import pytest

from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.tune.question import Question, slo_of


def test_a_promise_is_read_in_any_unit_and_order() -> None:
    """``--slo`` takes durations with a unit; what is left out is not promised."""
    assert Slo(ttft=0.5, tpot=0.03, percentile=99) == slo_of("tpot=30ms, ttft=0.5s", 99)
    assert Slo() == slo_of("")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("itl=3ms", "itl"),
        ("ttft", "ttft"),
        ("ttft=1s,ttft=2s", "twice"),
        ("gap=fast", "fast"),
        ("tpot=0", "tpot=0"),
        ("ttft=500", "ttft=500ms and ttft=500s"),
        ("ttft=0.5 ", "no unit"),
    ],
)
def test_a_promise_that_means_nothing_is_refused_by_name(text: str, named: str) -> None:
    """An unknown key, no value or two, no duration, no unit and a duration of 0 are errors that name the part."""
    with pytest.raises(ValueError, match=named):
        slo_of(text)


def test_lengths_average_between_the_shortest_and_the_longest() -> None:
    """The asked lengths are the longest; what is forecast is for their mean."""
    question = Question(1000, 200, least_share=0.8)
    assert (900, 180, 800, 1200) == (
        question.mean_input,
        question.mean_output,
        question.least_input,
        question.tokens,
    )


def test_a_price_for_a_machine_goes_before_the_price_for_all() -> None:
    """``--gpu-hour-price`` may name machines, and one price for every other."""
    question = Question(1, 1, prices={"": 2.0, "h100x2": 1.5})
    assert (1.5, 2.0, None) == (question.price_of("h100x2"), question.price_of("x"), Question(1, 1).price_of("x"))
