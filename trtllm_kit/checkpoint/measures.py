"""The figures of a comparison, one function each: b seen from a, position by position.

Sums are exact (``math.fsum``), so that the order of positions changes nothing, not even the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.dtypes import F32

F64 = NDArray[np.float64]


def mean(values: Iterable[float] | F64 | F32) -> float:
    """Return the arithmetic mean, the same in any order; NaN of nothing, and where the values have no mean."""
    numbers = [float(value) for value in values]
    if not all(map(math.isfinite, numbers)):
        return float(np.mean(numbers))
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def cosines(a: F32, b: F32) -> F32:
    """Return the cosine of each pair of rows; 1 for two rows of zeros, which are equal, and 0 for one of zeros.

    Sums are float64, so that equal rows of any length have exactly 1: in float32 a whole vocabulary falls short of it.
    """
    norms = np.sqrt(_products(a, a)) * np.sqrt(_products(b, b))
    equal = ~a.any(axis=-1) & ~b.any(axis=-1)
    found: F64 = np.where(norms == 0, equal, _products(a, b) / np.where(norms == 0, 1, norms))
    return found.astype(np.float32)


def _products(a: F32, b: F32) -> F64:
    found: F64 = np.einsum("ij,ij->i", a, b, dtype=np.float64)
    return found


def relative_errors(a: F32, b: F32) -> F64:
    """Return the length of b - a by the length of a (L2) for each pair of rows.

    0 for two equal rows, 1 where only a is zero: all of b is error then.
    """
    off = np.linalg.norm(b.astype(np.float64) - a, axis=-1)
    size = np.linalg.norm(a.astype(np.float64), axis=-1)
    found: F64 = np.where(size == 0, off != 0, off / np.where(size == 0, 1, size))
    return found.astype(np.float64)


def log_softmax(logits: F32) -> F64:
    """Return the logarithm of each token's probability, nats; (positions, vocab) as the logits."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def divergences(log_a: F64, log_b: F64) -> F64:
    """Return KL(a || b) of each row of log probabilities, nats: what is lost by taking b's odds for a's.

    Source: Kullback and Leibler, On information and sufficiency (1951). It is never below zero; rounding is cut off.
    """
    odds = np.exp(log_a)
    apart = np.subtract(log_a, log_b, out=np.zeros_like(odds), where=odds > 0)
    found: F64 = np.maximum((odds * apart).sum(axis=-1), 0.0)
    return found


def perplexity(losses: Iterable[float] | F64 | F32) -> float:
    """Return exp of the mean loss (-log p of the token that came, nats): as unsure as among so many equal tokens."""
    loss = mean(losses)
    return math.inf if loss > _LARGEST_EXPONENT else math.exp(loss)


_LARGEST_EXPONENT = math.log(np.finfo(np.float64).max)


def percentile(values: F64, share: float) -> float:
    """Return the smallest value that at least ``share`` (0 to 1) of the values do not exceed (nearest rank)."""
    ordered = np.sort(values)
    return float(ordered[max(math.ceil(share * len(ordered)) - 1, 0)])
