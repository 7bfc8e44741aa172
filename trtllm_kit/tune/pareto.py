"""The points that no other point beats in both of two figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def front(points: Iterable[T], across: Callable[[T], float], up: Callable[[T], float]) -> list[T]:
    """Return the points that none beats in ``up`` at the same or a larger ``across``, by falling ``across``.

    More is better in both; of points alike in both the first is kept.
    """
    kept: list[T] = []
    ordered = sorted(points, key=lambda point: (-across(point), -up(point)))
    highest = float("-inf")
    for point in ordered:
        if up(point) > highest:
            kept.append(point)
            highest = up(point)
    return kept
