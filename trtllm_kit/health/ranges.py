"""Ranges in Nagios syntax: ``10``, ``10:``, ``~:10``, ``0.70:0.85``, ``@10:20``. Both ends belong to the range.

Source: the threshold format of the monitoring-plugins development guidelines. Here a range is what is healthy.
"""

from __future__ import annotations

import math

from trtllm_kit.light import dataclass

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_RANGE = rf"(@?)(?:(~|{_NUMBER})?:)?({_NUMBER})?"


@dataclass(frozen=True)
class Range:
    """From ``start`` to ``end``, or with ``inverted`` everything outside of that."""

    start: float
    end: float
    inverted: bool = False

    def contains(self, value: float) -> bool:
        """Whether the value is healthy; NaN never is."""
        if math.isnan(value):
            return False
        return (self.start <= value <= self.end) is not self.inverted

    def __str__(self) -> str:
        """Write the range in Nagios syntax, with both ends."""
        start = "~" if self.start == -math.inf else format_number(self.start)
        end = "" if self.end == math.inf else format_number(self.end)
        return f"{'@' if self.inverted else ''}{start}:{end}"


def parse_range(text: str) -> Range:
    """Read a range; an absent start is 0, ``~`` is minus infinity, an absent end is infinity.

    Raises ``ValueError`` for anything else, saying what is wrong with it.
    """
    import re

    match = re.fullmatch(_RANGE, text.strip(), re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a range such as 0.70:0.85, :10 or 5: (ratios run from 0 to 1)")
    inverted, start_text, end_text = match.groups()
    if start_text is None and end_text is None:
        raise ValueError(f"{text!r} names neither end of the range")
    start = -math.inf if start_text == "~" else float(start_text or 0)
    end = math.inf if end_text is None else float(end_text)
    if math.isinf(float(end_text or 0)) or (start_text != "~" and math.isinf(start)):
        raise ValueError(f"{text!r} holds a number too large to compare with")
    if start > end:
        raise ValueError(f"{text!r} ends at {format_number(end)} before it starts at {format_number(start)}")
    return Range(start, end, inverted == "@")


def format_number(value: float) -> str:
    """Write a finite number without an exponent and with at most six decimals, as performance data wants it."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
