"""The front, against its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.tune.pareto import front

Pair = tuple[int, int]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_the_front_is_what_no_other_point_beats(points: list[Pair]) -> None:
    """A point is on the front exactly when none is at least as good in both and better in one; equals count once."""

    def beaten(one: Pair) -> bool:
        return any(other[0] >= one[0] and other[1] >= one[1] and other != one for other in points)

    expected = sorted({point for point in points if not beaten(point)}, reverse=True)
    assert expected == front(points, across=lambda point: point[0], up=lambda point: point[1])
