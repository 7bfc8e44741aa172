"""Values in buckets of a bounded relative width, as HDR histograms keep them: small, mergeable, exact to 0.2 %.

Percentiles are those of ``estimate.spread``, over the buckets.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import frexp, ldexp

from trtllm_kit.estimate.spread import percentile

PARTS = 256
"""Buckets between a number and its double."""


class Histogram:
    """Counts of values of at least 0, in one unit; seconds for latencies."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        """Begin with some values."""
        self.count = 0
        self.total = 0.0
        self.least = 0.0
        self.most = 0.0
        self.buckets: dict[int, int] = {}
        """Counts by bucket; see ``middle``."""
        for value in values:
            self.add(value)

    def add(self, value: float, count: int = 1) -> None:
        """Add a value; below 0 is taken as 0, which is what a clock's resolution makes of nothing."""
        value = max(value, 0.0)
        bucket = bucket_of(value)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.least = value if not self.count else min(self.least, value)
        self.most = max(self.most, value)
        self.count += count
        self.total += value * count

    def merge(self, other: Histogram) -> None:
        """Add all values of another."""
        if not other.count:
            return
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.least = min(self.least, other.least) if self.count else other.least
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total

    @property
    def mean(self) -> float:
        """The mean; 0 of no values."""
        return self.total / self.count if self.count else 0.0

    def at(self, share: float) -> float:
        """Return the value that a share (0 to 1) of the values do not exceed; 0 of no values.

        It is within 0.2 % of the exact one, and never beyond the least or the most.
        """
        if not self.count:
            return 0.0
        found = percentile(((middle(bucket), count) for bucket, count in self.buckets.items()), share)
        return min(max(found, self.least), self.most)

    def curve(self, points: int = 200) -> list[tuple[float, float]]:
        """Return value and share of values up to it, ascending, at most about so many points."""
        seen, found, step = 0, [], max(len(self.buckets) // points, 1)
        ordered = sorted(self.buckets.items())
        for place, (bucket, count) in enumerate(ordered):
            seen += count
            if place % step == 0 or place == len(ordered) - 1:
                found.append((min(middle(bucket), self.most), seen / self.count))
        return found

    def document(self) -> dict[str, object]:
        """Return it as JSON keeps it."""
        return {
            "count": self.count,
            "total": self.total,
            "least": self.least,
            "most": self.most,
            "buckets": [[bucket, count] for bucket, count in sorted(self.buckets.items())],
        }


def bucket_of(value: float) -> int:
    """Return the number of the bucket of a value of at least 0."""
    if value <= 0.0:
        return _ZERO
    half, power = frexp(value)
    return power * PARTS + int((half - 0.5) * 2 * PARTS)


def middle(bucket: int) -> float:
    """Return the value in the middle of a bucket."""
    if bucket == _ZERO:
        return 0.0
    power, part = divmod(bucket, PARTS)
    return ldexp(0.5 + (part + 0.5) / (2 * PARTS), power)


_ZERO = -(1 << 20)


def _is_bucket(bucket: int, count: int) -> bool:
    return count >= 0 and (bucket == _ZERO or abs(bucket) < 1000 * PARTS)


def read_histogram(document: object) -> Histogram:
    """Return a histogram from its document; raises ``ValueError`` for anything else."""
    made = Histogram()
    try:
        assert isinstance(document, dict)  # noqa: S101
        made.buckets = {int(bucket): int(count) for bucket, count in document["buckets"]}
        made.count, made.total = int(document["count"]), float(document["total"])
        made.least, made.most = float(document["least"]), float(document["most"])
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"no histogram: {error!r}") from None
    numbers = (made.total, made.least, made.most)
    if not all(0 <= one < 1e18 for one in numbers) or not all(_is_bucket(*one) for one in made.buckets.items()):
        raise ValueError("no histogram: a value is past what is measured")
    if sum(made.buckets.values()) != made.count:
        raise ValueError("no histogram: its counts do not add up")
    return made
