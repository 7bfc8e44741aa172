"""Products with matrices that are never whole in memory."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest

from trtllm_kit.dtypes import F32
from trtllm_kit.reference import streamed
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.streamed import ExpertColumns, RowBlocks

STORED = np.random.default_rng(3).standard_normal((700, 24)).astype(np.float32)


class Reads:
    """Hands out rows of ``STORED`` and keeps which."""

    def __init__(self) -> None:
        """Start with none."""
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, begin: int, end: int) -> F32:
        """Return rows."""
        self.ranges.append((begin, end))
        return STORED[begin:end]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "BLOCK_ELEMENTS", 24 * 130)


def test_a_product_by_blocks_is_the_product() -> None:
    """A part of the rows times seven tokens, each row read once and never more than a block of them."""
    reads, values = Reads(), np.random.default_rng(4).standard_normal((7, 24)).astype(np.float32)
    found = RowBlocks(reads, 0, 700, 24).cut(50, 650).product(values)
    np.testing.assert_allclose(values @ STORED[50:650].T, found, rtol=1e-5, atol=1e-5)
    ranges = sorted(reads.ranges)
    assert (50, 650) == (ranges[0][0], ranges[-1][1])
    assert all(end == begin for (_, end), (begin, _) in pairwise(ranges))
    assert 128 == max(end - begin for begin, end in ranges)


def test_a_matrix_with_very_long_rows_is_read_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is longer than a block is a block."""
    monkeypatch.setattr(streamed, "BLOCK_ELEMENTS", 10)
    reads, values = Reads(), np.ones((1, 24), np.float32)
    np.testing.assert_allclose(values @ STORED[:5].T, RowBlocks(reads, 0, 5, 24).product(values), rtol=1e-5)
    assert [(row, row + 1) for row in range(5)] == sorted(reads.ranges)


def test_rows_that_are_taken_are_read_once_each() -> None:
    """Tokens that come again cost nothing, and no other row is read."""
    reads = Reads()
    found = RowBlocks(reads, 0, 700, 24).take(np.array([5, 699, 5, 0]))
    assert np.array_equal(STORED[[5, 699, 5, 0]], found)
    assert [(0, 1), (5, 6), (699, 700)] == reads.ranges


def test_what_a_thread_raises_is_raised_here() -> None:
    """A file that ends early stops the product, wherever it was read."""

    def read(begin: int, end: int) -> F32:
        if begin >= 256:
            raise ValueError(f"rows {begin} to {end}")
        return STORED[begin:end]

    with pytest.raises(ValueError, match="rows 256 to 384"):
        RowBlocks(read, 0, 700, 24).product(np.ones((1, 24), np.float32))


def test_threads_read_under_the_caller_s_errstate() -> None:
    """What the caller silenced stays silent in all of them."""

    def overflowing(begin: int, end: int) -> F32:
        return STORED[begin:end] * np.float32(1e38) * np.float32(1e38)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        found = RowBlocks(overflowing, 0, 700, 24).product(np.zeros((1, 24), np.float32))
    assert (1, 700) == found.shape


def test_a_linear_does_not_mind_where_its_weight_is() -> None:
    """Bias, input scale and cutting are the same with rows that are read as they are wanted."""
    bias, values = (
        np.arange(700, dtype=np.float32),
        np.random.default_rng(5).standard_normal((3, 24)).astype(np.float32),
    )
    held = Linear("m", STORED, bias, 0.02, "fp8").rows(100, 500)
    read = Linear("m", RowBlocks(Reads(), 0, 700, 24), bias, 0.02, "fp8").rows(100, 500)
    np.testing.assert_allclose(held(values), read(values), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_an_expert_s_columns_are_its_output_features(whole: bool) -> None:
    """A fused stack is stored (in, out): every second column is the gate of gpt-oss; its rows are read in blocks."""
    reads, values = Reads(), np.random.default_rng(6).standard_normal((3, 700)).astype(np.float32)
    expert = ExpertColumns(reads, (700, 24), slice(0, None, 2), whole=whole)
    np.testing.assert_allclose(values @ STORED[:, ::2], expert.product(values), rtol=1e-5, atol=1e-4)
    blocks = [(at, min(at + 128, 700)) for at in range(0, 700, 128)]
    assert ([(0, 700)] if whole else blocks) == sorted(reads.ranges)
