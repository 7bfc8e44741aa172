"""Steps of an output: what is scaled by what, and where numbers come from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.checkpoint.formats import measured_scale
from trtllm_kit.checkpoint.matrix import Matrix, Slice
from trtllm_kit.checkpoint.step import TensorStep

WHOLE = Slice("w", (0, 8), (0, 6))
LEFT = Slice("w", (0, 8), (0, 3))
OTHER = Slice("v", (0, 8), (0, 6))

ranges = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair) + 1))
slices = st.builds(Slice, st.sampled_from(["a", "b"]), ranges, ranges, st.sampled_from([None, 0]), st.booleans())


@given(slices, slices)
def test_a_slice_lies_in_another_when_its_numbers_do(one: Slice, other: Slice) -> None:
    """Containment is that of the sets of elements, within the same matrix of the same tensor."""

    def elements(part: Slice) -> set[tuple[object, ...]]:
        place = part.tensor, part.index, part.transposed
        return {(*place, row, column) for row in range(*part.rows) for column in range(*part.columns)}

    assert (elements(one) <= elements(other)) == one.lies_in(other)


def test_a_part_is_scaled_by_the_whole_and_not_read_once_more() -> None:
    """Where a matrix it shares its scale with holds it, that one alone is looked through."""
    step = TensorStep("t", "F8_E4M3", (8, 3), source=Matrix((LEFT,)), scaled_with=(Matrix((WHOLE, OTHER)),))
    assert (Matrix((WHOLE, OTHER)),) == step.scanned


def test_matrices_that_share_a_scale_are_all_looked_through() -> None:
    """A partner that does not hold it comes on top."""
    step = TensorStep("t", "F8_E4M3", (8, 6), source=Matrix((WHOLE,)), scaled_with=(Matrix((OTHER,)),))
    assert (Matrix((WHOLE,)), Matrix((OTHER,))) == step.scanned


def test_blocks_are_scaled_one_by_one() -> None:
    """A stack of two matrices is two steps of the same name, each with its own source and partner."""
    step = TensorStep(
        "t", "F8_E4M3", (2, 8, 3), source=Matrix((LEFT, OTHER)), scaled_with=(Matrix((WHOLE, OTHER)),), blocks=2
    )
    first, second = step.parted()
    assert (Matrix((WHOLE,)),) == first.scanned
    assert (Matrix((OTHER,)),) == second.scanned
    assert ("t", (2, 8, 3)) == (second.name, second.shape)


def test_a_step_of_one_matrix_is_one_part() -> None:
    """Without blocks nothing is cut."""
    step = TensorStep("t", "BF16", (8, 6), source=Matrix((WHOLE,)))
    assert (step,) == step.parted()


@pytest.mark.parametrize(
    ("measured", "origin"),
    [((), "the number 1"), (("a", "b"), "calibration: a, b"), (tuple("abcde"), "calibration: a and 4 more")],
)
def test_the_origin_of_a_scale_names_what_is_measured(measured: tuple[str, ...], origin: str) -> None:
    """A few names are spelt out, many are counted, and none stands for the number one."""
    assert origin == TensorStep("t", "F32", (1,), measured=measured).origin


@given(st.floats(0, 2.0**100, width=32))
def test_a_cache_scale_of_an_engine_is_never_below_one(amax: float) -> None:
    """It is what was measured / 448 where that is more than 1."""
    assert max(np.float32(1), np.float32(amax) / np.float32(448)) == measured_scale("fp8_once", "kv_scale", amax).item()
