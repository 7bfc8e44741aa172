"""Small functions of the forward pass against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.reference.numeric import fake_e4m3, gelu, gelu_tanh, rms_norm, sigmoid, silu, softcap, softmax


def array(*values: float) -> np.ndarray:
    """Make a float32 array."""
    return np.array(values, dtype=np.float32)


def test_rms_norm_brings_the_root_mean_square_to_one_and_applies_the_weight() -> None:
    """(3, 4) has a root mean square of sqrt(12.5)."""
    np.testing.assert_allclose([2 * 3 / 12.5**0.5, 4 / 12.5**0.5], rms_norm(array(3, 4), array(2, 1), 0.0), rtol=1e-6)


def test_rms_norm_of_zeros_is_zero() -> None:
    """The epsilon keeps the division finite."""
    assert [0.0, 0.0] == rms_norm(array(0, 0), array(1, 1), 1e-5).tolist()


def test_softmax_is_stable_for_large_logits() -> None:
    """Logits that overflow exp still give probabilities, and -inf gives none."""
    np.testing.assert_allclose([0.5, 0.5, 0.0], softmax(array(1000, 1000, -np.inf)))


@pytest.mark.parametrize(("value", "expected"), [(0.0, 0.5), (2.0, 0.8807971), (-200.0, 0.0), (200.0, 1.0)])
def test_sigmoid(value: float, expected: float) -> None:
    """The logistic function, without a warning far out."""
    np.testing.assert_allclose(expected, sigmoid(array(value))[0], atol=1e-7)


def test_silu_and_gelu() -> None:
    """X * sigmoid(x), and x * Phi(x)."""
    np.testing.assert_allclose([1.7615942, -0.2689414], silu(array(2, -1)), rtol=1e-6)
    np.testing.assert_allclose([1.9544997, -0.1586553], gelu(array(2, -1)), rtol=1e-6)


def test_fake_e4m3_keeps_three_mantissa_bits_under_a_scale() -> None:
    """With scale 0.5 the value 0.53 is 1.06 steps of one, and the nearest codes are 1.0 and 1.125."""
    assert [0.5, 0.5625, 224.0] == fake_e4m3(array(0.53, 0.57, 1000.0), 0.5).tolist()


def test_the_tanh_form_of_gelu_is_near_the_exact_one() -> None:
    """They differ by less than 0.0005, and both keep zero."""
    values = np.linspace(-6, 6, 241, dtype=np.float32)
    np.testing.assert_allclose(gelu(values), gelu_tanh(values), atol=5e-4)
    assert 0.0 == gelu_tanh(np.zeros(1, np.float32))[0]
    assert not np.array_equal(gelu(values), gelu_tanh(values))


@given(value=st.floats(-1e6, 1e6, width=32), cap=st.floats(0.5, 100, width=32))
def test_a_soft_cap_bounds_and_keeps_small_values(value: float, cap: float) -> None:
    """Nothing passes the cap, the sign stays, and what is far below the cap stays as it was."""
    capped = float(softcap(np.array([value], np.float32), cap)[0])
    assert abs(capped) <= cap
    assert capped * value >= 0.0
    if abs(value) < cap / 100:
        assert value == pytest.approx(capped, rel=1e-4, abs=1e-6)
