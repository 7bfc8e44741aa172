"""Scales, tables and largest magnitudes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trtllm_kit.checkpoint.formats.bits import largest_magnitude, round_to
from trtllm_kit.checkpoint.formats.fp8 import fp8_scale, fp8_table, quantise
from trtllm_kit.dtypes import encode_bf16
from trtllm_kit.errors import TensorError

FINITE_BF16 = np.array([bits for bits in range(1 << 16) if bits & 0x7FFF < 0x7F80], dtype=np.uint16)
SCALES = st.floats(2.0**-40, 2.0**20, width=32)


@given(scale=SCALES)
def test_codes_are_ml_dtypes_own_after_a_rounding_to_bf16(scale: float) -> None:
    """The table is (weight / scale) cast to bfloat16 and then to e4m3, saturating, for every bfloat16."""
    scale32 = np.float32(scale)
    with np.errstate(over="ignore"):
        quotients = (FINITE_BF16.view(ml_dtypes.bfloat16).astype(np.float32) / scale32).astype(ml_dtypes.bfloat16)
    clipped = np.clip(quotients.astype(np.float32), -448, 448)
    expected = clipped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(expected, quantise(FINITE_BF16, fp8_table(scale32, "BF16")))


@given(scale=SCALES)
def test_fused_experts_are_rounded_once(scale: float) -> None:
    """Without the rounding to bfloat16 the table is ml_dtypes' own cast of the float32 quotient."""
    with np.errstate(over="ignore"):
        quotients = FINITE_BF16.view(ml_dtypes.bfloat16).astype(np.float32) / np.float32(scale)
    expected = np.clip(quotients, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(expected, quantise(FINITE_BF16, fp8_table(np.float32(scale), "BF16", twice=False)))


def test_float16_has_a_table_of_its_own() -> None:
    """1.5 at scale 0.5 is 3, whose e4m3 code is 0x44."""
    bits = np.array([1.5, -1.5], np.float16)
    assert [0x44, 0xC4] == quantise(bits, fp8_table(np.float32(0.5), "F16")).tolist()


@given(amax=st.floats(0.0, 2.0**127, width=32))
def test_every_scale_is_finite_and_positive(amax: float) -> None:
    """Down to zero and the smallest subnormal."""
    scale = fp8_scale(amax)
    assert np.isfinite(scale)
    assert scale > 0
    assert np.float32 is type(scale)


def test_a_scale_maps_the_amax_to_448() -> None:
    """Amax over the largest e4m3 value; one for a tensor of zeros."""
    assert np.float32(2.0) == fp8_scale(896.0)
    assert np.float32(1.0) == fp8_scale(0.0)


@given(values=arrays(np.float32, st.integers(1, 40), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_largest_magnitude_is_the_maximum_of_the_absolute_values(values: np.ndarray) -> None:
    """Whatever the signs."""
    bits = encode_bf16(values)
    expected = float(np.abs(bits.view(ml_dtypes.bfloat16).astype(np.float32)).max())
    assert expected == largest_magnitude(bits, "BF16", "w")
    assert float(np.abs(values).max()) == largest_magnitude(values, "F32", "w")


@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "NaN"), (-np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_values_that_are_not_finite_are_refused_by_name(value: float, word: str, dtype: str) -> None:
    """One of them is enough, and the message names the tensor."""
    values = np.array([1.0, value, 2.0], np.float32)
    raw = {"BF16": encode_bf16(values), "F16": values.astype(np.float16), "F32": values}[dtype]
    with pytest.raises(TensorError, match=f"tensor model.w holds {word}"):
        largest_magnitude(raw, dtype, "model.w")


def test_what_float16_cannot_hold_is_refused() -> None:
    """Rounding would make infinity of it."""
    with pytest.raises(TensorError, match="does not fit float16"):
        round_to(np.array([70000.0], np.float32), "F16", "w")
    assert [0x3FC0] == round_to(np.array([1.5], np.float32), "BF16", "w").tolist()
