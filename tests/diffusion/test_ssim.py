"""Structural similarity: the same pictures, other pictures, and a value worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.diffusion.ssim import ssim


@given(st.integers(0, 1000), st.integers(1, 20), st.integers(1, 20))
def test_a_picture_is_like_itself(seed: int, height: int, width: int) -> None:
    """SSIM of any picture with itself is one."""
    picture = np.random.default_rng(seed).standard_normal((2, 3, height, width)).astype(np.float32)
    assert 1.0 == pytest.approx(ssim(picture, picture))


def test_one_window_by_the_formula() -> None:
    """Of 2 x 2 pictures 0 0 1 1 and 0 1 0 1: equal means and variances 1/3, no covariance."""
    first, second = (np.array(rows, np.float32) for rows in ([[0, 0], [1, 1]], [[0, 1], [0, 1]]))
    assert (0.03**2) / (2 / 3 + 0.03**2) == pytest.approx(ssim(first, second))


def test_more_noise_is_less_like() -> None:
    """It falls as noise grows."""
    random = np.random.default_rng(1)
    picture, noise = (random.standard_normal((1, 32, 32)).astype(np.float32) for _ in range(2))
    likeness = [ssim(picture, picture + np.float32(scale) * noise) for scale in (0, 0.01, 0.1, 1)]
    assert sorted(likeness, reverse=True) == likeness
    assert 0.5 > likeness[-1]


@pytest.mark.parametrize("second", [np.ones((3, 3), np.float32), np.full((4, 4), np.nan, np.float32)])
def test_what_cannot_be_compared_is_refused(second: np.ndarray) -> None:
    """Other shapes and numbers that are not finite have no likeness."""
    with pytest.raises(ValueError, match="picture"):
        ssim(np.ones((4, 4), np.float32), second)
