"""BF16, e4m3, e2m1 and E8M0 arithmetic against ml_dtypes, an independent implementation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trtllm_kit.dtypes import (
    E2M1_MAX,
    E4M3_MAX,
    decode_bf16,
    decode_e2m1,
    decode_e4m3,
    decode_e8m0,
    e8m0_at_least,
    encode_bf16,
    encode_e2m1,
    encode_e4m3,
    round_e4m3,
)

FLOATS = hnp.arrays(np.float32, st.integers(1, 64), elements=st.floats(-1e4, 1e4, width=32))


@given(FLOATS)
def test_e4m3_codes_equal_ml_dtypes_after_saturation(values: np.ndarray) -> None:
    """Nearest-even rounding agrees bit for bit inside the range; outside it saturates."""
    expected = np.clip(values, -E4M3_MAX, E4M3_MAX).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)

    assert np.array_equal(expected, encode_e4m3(values))


def test_every_bf16_value_over_448_rounds_as_ml_dtypes_does() -> None:
    """All 65,536 BF16 patterns, scaled into the range, give the same e4m3 code as the independent cast."""
    values = decode_bf16(np.arange(1 << 16, dtype=np.uint16))
    values = values[np.isfinite(values) & (np.abs(values) <= E4M3_MAX)]

    expected = values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)

    assert np.array_equal(expected, encode_e4m3(values))


def test_all_256_e4m3_codes_decode_as_ml_dtypes_does() -> None:
    """Both NaN codes and both zeros included."""
    codes = np.arange(256, dtype=np.uint8)

    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)

    assert np.array_equal(expected, decode_e4m3(codes), equal_nan=True)


@given(FLOATS)
def test_rounding_to_e4m3_is_idempotent_and_equals_decode_of_encode(values: np.ndarray) -> None:
    """The fake-quantised value is the value the code stands for."""
    rounded = round_e4m3(values)

    assert np.array_equal(rounded, round_e4m3(rounded))
    assert np.array_equal(rounded, decode_e4m3(encode_e4m3(values)))


@given(hnp.arrays(np.float32, st.integers(1, 64), elements=st.floats(width=32, allow_nan=False)))
def test_bf16_bits_equal_ml_dtypes(values: np.ndarray) -> None:
    """Rounding to BF16 agrees for every finite and infinite float32."""
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)

    assert np.array_equal(expected, encode_bf16(values))


def test_nan_stays_nan() -> None:
    """No format turns NaN into a number."""
    nan = np.array([np.nan], np.float32)

    assert np.isnan(decode_bf16(encode_bf16(nan)))[0]
    assert encode_e4m3(nan)[0] == 0x7F
    assert np.isnan(round_e4m3(nan))[0]


@given(hnp.arrays(np.float32, st.integers(1, 64), elements=st.floats(-10, 10, width=32)))
def test_e2m1_codes_equal_ml_dtypes_after_saturation(values: np.ndarray) -> None:
    """Nearest even inside the range, saturating at 6, and 0 for minus zero."""
    values = np.where(values == 0, np.float32(0), values)
    expected = np.clip(values, -E2M1_MAX, E2M1_MAX).astype(ml_dtypes.float4_e2m1fn)
    assert np.array_equal(expected.view(np.uint8), encode_e2m1(values))
    assert np.array_equal(expected.astype(np.float32), decode_e2m1(encode_e2m1(values)))


def test_e2m1_ties_go_to_the_even_code() -> None:
    """The seven middles, a value beside one of them, and both zeros."""
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, np.nextafter(np.float32(0.75), np.float32(0))], np.float32)
    assert [0, 2, 2, 4, 4, 6, 6, 1] == encode_e2m1(ties).tolist()
    assert [0, 0] == encode_e2m1(np.array([0.0, -0.0], np.float32)).tolist()


@given(hnp.arrays(np.float32, st.integers(1, 64), elements=st.floats(2.0**-126, 2.0**126, width=32)))
def test_e8m0_is_the_smallest_power_of_two_that_is_not_below(values: np.ndarray) -> None:
    """At least the value, and less than twice it."""
    powers = decode_e8m0(e8m0_at_least(values))
    assert (powers >= values).all()
    assert (powers < 2 * values).all()


def test_e8m0_ends_at_its_last_codes() -> None:
    """Zero and what is below 2^-127 take code 0; 2^127 is code 254, as in ml_dtypes."""
    codes = np.arange(255, dtype=np.uint8)
    assert [0, 0, 127, 254] == e8m0_at_least(np.array([0.0, 2.0**-140, 1.0, 2.0**127], np.float32)).tolist()
    assert np.array_equal(codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), decode_e8m0(codes))


@pytest.mark.parametrize("shape", [(3, 7), (3, 8), (2, 3, 6), (0, 4), (5,), ()])
def test_e4m3_codes_decode_alike_in_every_shape(shape: tuple[int, ...]) -> None:
    """Two at a time where rows are even, one by one where they are not, and so do rows that lie apart."""
    codes = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert np.array_equal(expected, decode_e4m3(codes), equal_nan=True)
    if codes.ndim > 1:
        assert np.array_equal(expected[..., ::2], decode_e4m3(codes[..., ::2]), equal_nan=True)
        assert np.array_equal(expected.T, decode_e4m3(codes.T), equal_nan=True)
