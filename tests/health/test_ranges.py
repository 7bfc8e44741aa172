"""Nagios ranges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.health.ranges import Range, format_number, parse_range


@pytest.mark.parametrize(
    ("text", "expected", "written"),
    [
        ("10", Range(0, 10), "0:10"),
        (":10", Range(0, 10), "0:10"),
        ("0:10", Range(0, 10), "0:10"),
        ("10:", Range(10, math.inf), "10:"),
        ("~:10", Range(-math.inf, 10), "~:10"),
        ("~:", Range(-math.inf, math.inf), "~:"),
        ("0.70:0.85", Range(0.7, 0.85), "0.7:0.85"),
        ("-5:-2.5", Range(-5, -2.5), "-5:-2.5"),
        ("@10:20", Range(10, 20, inverted=True), "@10:20"),
        (" 1e3 ", Range(0, 1000), "0:1000"),
    ],
)
def test_a_range_is_read_and_written(text: str, expected: Range, written: str) -> None:
    """Every form of the syntax has its bounds, and is written with both ends."""
    assert expected == parse_range(text)
    assert written == str(parse_range(text))
    assert expected == parse_range(written)


@pytest.mark.parametrize(
    "text", ["", ":", "@", "@:", "10:5", "90%", "nan", "0:nan", "inf", "1:2:3", "~", "a:b", "1e999", "~10", "0:~"]
)
def test_what_is_no_range_is_refused_with_the_text(text: str) -> None:
    """A text that is no range raises ValueError naming it."""
    with pytest.raises(ValueError, match=r"range|end|large"):
        parse_range(text)


def test_both_ends_are_healthy() -> None:
    """The bounds belong to the range, and what lies beyond them does not."""
    band = parse_range("0.70:0.85")
    assert [False, True, True, True, False] == [band.contains(v) for v in (0.699, 0.70, 0.8, 0.85, 0.851)]


def test_an_inverted_range_is_healthy_outside() -> None:
    """With @ the values from start to end are the unhealthy ones, both ends with them."""
    band = parse_range("@10:20")
    assert [True, False, False, False, True] == [band.contains(v) for v in (9.9, 10, 15, 20, 20.1)]


@pytest.mark.parametrize("text", ["0:10", "@0:10", "~:"])
def test_nan_is_never_healthy(text: str) -> None:
    """NaN lies in no range, inverted or not."""
    assert not parse_range(text).contains(math.nan)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.booleans(), st.floats(allow_nan=False))
def test_a_written_range_judges_as_before(low: float, high: float, inverted: bool, value: float) -> None:
    """Writing a range and reading it back changes no verdict beyond the six decimals that are written."""
    low, high = sorted((round(low, 6), round(high, 6)))
    band = Range(low, high, inverted)
    assert band.contains(value) == parse_range(str(band)).contains(value)


@given(st.floats(-1e15, 1e15))
def test_numbers_are_written_without_an_exponent(value: float) -> None:
    """Performance data gets digits, one dot and a sign only, close to the value."""
    text = format_number(value)
    assert set(text) <= set("-.0123456789")
    assert abs(float(text) - value) <= 1e-6 + abs(value) * 1e-15
