"""Structural similarity of two pictures (Wang, Bovik, Sheikh and Simoncelli 2004), in numpy.

``SSIM = (2 m1 m2 + C1)(2 c + C2) / ((m1² + m2² + C1)(v1 + v2 + C2))`` in every window of 7 x 7 elements (all of a
smaller picture), equally weighted, averaged over windows, channels and pictures; ``m`` is the mean, ``v`` the sample
variance, ``c`` the sample covariance, ``C1 = (0.01 L)²``, ``C2 = (0.03 L)²``. ``L`` is the range of the first picture.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

_WINDOW = 7
_K1, _K2 = 0.01, 0.03


def ssim(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Return the mean SSIM of pictures of equal shape (..., height, width); 1 for the same, at most 1.

    Raises ``ValueError`` for other shapes, and for numbers that are not finite.
    """
    if first.shape != second.shape or first.ndim < 2 or min(first.shape) < 1:
        raise ValueError(f"pictures of {first.shape} and {second.shape}")
    one, two = first.astype(np.float64), second.astype(np.float64)
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise ValueError("a picture holds numbers that are not finite")
    span = float(one.max() - one.min()) or 1.0
    c1, c2 = (_K1 * span) ** 2, (_K2 * span) ** 2
    size = min(_WINDOW, one.shape[-2]), min(_WINDOW, one.shape[-1])
    count = size[0] * size[1]
    unbiased = count / max(count - 1, 1)
    mean1, mean2 = _means(one, size), _means(two, size)
    variances = (_means(one * one, size) - mean1**2 + _means(two * two, size) - mean2**2) * unbiased
    covariance = (_means(one * two, size) - mean1 * mean2) * unbiased
    likeness = (2 * mean1 * mean2 + c1) * (2 * covariance + c2) / ((mean1**2 + mean2**2 + c1) * (variances + c2))
    return float(likeness.mean())


def _means(values: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    windows: NDArray[np.float64] = sliding_window_view(values, size, axis=(-2, -1))  # type: ignore[call-overload]
    means: NDArray[np.float64] = windows.mean(axis=(-2, -1))
    return means
