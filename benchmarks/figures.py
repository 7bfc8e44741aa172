"""Errors of predictions against measurements, as shares; ranks within a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median


@dataclass(frozen=True, slots=True)
class Errors:
    """How far predictions are from what was measured, as shares of what was measured."""

    count: int
    mape: float
    """Mean of the absolute errors."""
    median: float
    """Median of the absolute errors."""
    bias: float
    """Mean of the errors; positive where predictions are too large."""
    worst: float
    """The error that is largest without its sign."""


def errors_of(pairs: Sequence[tuple[float, float]]) -> Errors:
    """Compare (predicted, measured) pairs.

    Raises ``ValueError`` when there are none.
    """
    if not pairs:
        raise ValueError("no pairs to compare")
    off = [predicted / measured - 1 for predicted, measured in pairs]
    sizes = [abs(each) for each in off]
    return Errors(len(off), fmean(sizes), median(sizes), fmean(off), max(off, key=abs))


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Spearman's correlation of pairs: 1 where both are in the same order; equal values share a rank."""
    first, second = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    middle = (len(pairs) + 1) / 2
    together = sum((one - middle) * (other - middle) for one, other in zip(first, second, strict=True))
    spread = [sum((one - middle) ** 2 for one in ranks) for ranks in (first, second)]
    return together / (spread[0] * spread[1]) ** 0.5 if all(spread) else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return ranks
