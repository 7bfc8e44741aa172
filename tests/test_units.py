"""Units: one parser, one printer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.units import (
    counted,
    format_bytes,
    format_count,
    format_seconds,
    parse_bytes,
    parse_seconds,
    parse_share,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4 MiB", 4194304), ("80GB", 80_000_000_000), ("1.5 KiB", 1536), (17, 17), ("0", 0), ("1e3 B", 1000)],
)
def test_parse_bytes_reads_decimal_and_binary_units(text: str | int, expected: int) -> None:
    """A number with a unit is bytes; a bare number is bytes already."""
    assert expected == parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("250ms", 0.25), ("2 min", 120.0), ("1.5", 1.5), ("3h", 10800.0), ("2d", 172800.0)]
)
def test_parse_seconds_reads_every_time_unit(text: str, expected: float) -> None:
    """Durations are seconds inside."""
    assert expected == pytest.approx(parse_seconds(text))


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "four", "1 parsec", "1 MiB extra", True, None, [1]])
def test_what_is_not_a_quantity_is_refused(text: object) -> None:
    """Negative, non-finite and unknown-unit input never becomes a number."""
    with pytest.raises(ValueError, match=r"not a|unknown"):
        parse_bytes(text)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"not a|unknown"):
        parse_seconds(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(1536), "1.50 KiB"),
        (format_bytes(3), "3 B"),
        (format_bytes(-(5 << 30)), "-5.00 GiB"),
        (format_seconds(0.472), "472 ms"),
        (format_seconds(200), "3 min 20 s"),
        (format_count(12_682_669_568), "12.68B"),
    ],
)
def test_numbers_print_with_their_unit(shown: str, expected: str) -> None:
    """Each printer keeps the unit beside the number."""
    assert expected == shown


@given(st.integers(min_value=0, max_value=1 << 60))
def test_plain_bytes_survive_a_round_trip(count: int) -> None:
    """Printing a byte count without a unit and reading it back loses nothing below 2^53."""
    assert count == parse_bytes(count) or count > 1 << 53


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1200, "1,200 files")])
def test_a_count_has_its_noun_in_the_right_number(count: int, text: str) -> None:
    """One file, and every other number of files."""
    assert text == counted(count, "file")


@pytest.mark.parametrize(
    ("text", "share"), [("0.5%", 0.005), ("99.9 %", 0.999), ("0.25", 0.25), (1, 1.0), ("1e-9%", 1e-11)]
)
def test_shares_in_percent_or_of_one(text: str | float, share: float) -> None:
    """The decimal that was written, with no dust of a division."""
    assert share == parse_share(text)


@pytest.mark.parametrize("text", ["1ms", "5 GiB", "-1%", "%", "nan", True])
def test_what_is_no_share_is_refused(text: str | float) -> None:
    """Another unit, a sign, no number."""
    with pytest.raises(ValueError, match=r"share|quantity|number"):
        parse_share(text)
