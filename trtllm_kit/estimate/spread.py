"""Percentiles and means of figures that come with counts: one definition for all latencies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Literal, get_args

from trtllm_kit.light import dataclass

Percentile = Literal[50, 90, 95, 99, 100]
"""Shares of the values, percent, that figures are kept at; 100 is the largest."""
PERCENTILES: tuple[Percentile, ...] = get_args(Percentile)
_FIELDS: dict[Percentile, str] = {50: "p50", 90: "p90", 95: "p95", 99: "p99", 100: "most"}


@dataclass(frozen=True)
class Spread:
    """How a figure is spread over requests or gaps; all values in the figure's own unit."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float

    def at(self, percentile: Percentile) -> float:
        """Return the value that so large a share does not exceed."""
        value: float = getattr(self, _FIELDS[percentile])
        return value


NOTHING = Spread(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""The spread of no values; ``count`` tells it from values of 0."""


def percentile(values: Iterable[tuple[float, int]], share: float) -> float:
    """Return the smallest value that at least ``share`` (0 to 1) of the values do not exceed (nearest rank).

    ``values`` are pairs of value and count. Raises ``ValueError`` when there are none.
    """
    return _at(_ordered(values), (share,))[0]


def spread(values: Iterable[tuple[float, int]]) -> Spread:
    """Return the spread of values with counts; ``NOTHING`` when there are none."""
    ordered = _ordered(values)
    if not ordered:
        return NOTHING
    count = sum(weight for _, weight in ordered)
    mean = sum(value * weight for value, weight in ordered) / count
    p50, p90, p95, p99 = _at(ordered, (0.5, 0.9, 0.95, 0.99))
    return Spread(count, mean, p50, p90, p95, p99, ordered[-1][0])


def spread_of(values: Iterable[float]) -> Spread:
    """Return the spread of values that count once each."""
    return spread((value, 1) for value in values)


def _ordered(values: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    return sorted(pair for pair in values if pair[1])


def _at(ordered: Sequence[tuple[float, int]], shares: Sequence[float]) -> list[float]:
    """Return the values at ascending shares."""
    if not ordered:
        raise ValueError("no values")
    count = sum(weight for _, weight in ordered)
    found: list[float] = []
    seen, place = 0, -1
    for share in shares:
        rank = max(ceil(share * count), 1)
        while seen < rank:
            place += 1
            seen += ordered[place][1]
        found.append(ordered[place][0])
    return found
