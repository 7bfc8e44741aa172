"""What quantised linear layers do to their input, against ml_dtypes' own casts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.reference.rounding import rounded_entry, rounded_input

INPUTS = st.builds(
    lambda seed, tokens, features, power: (
        np.random.default_rng(seed).standard_normal((tokens, features)).astype(np.float32) * np.float32(2.0**power)
    ),
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(1, 300),
    st.integers(-20, 20),
)


def e4m3(values: np.ndarray) -> np.ndarray:
    """Round by the independent cast."""
    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


@pytest.mark.parametrize("number_format", ["plain", "int8_wo", "int4_wo"])
@given(values=INPUTS)
def test_weight_only_formats_leave_the_input_alone(number_format: str, values: np.ndarray) -> None:
    """Not a bit changes."""
    assert values is rounded_input(values, number_format, None)


@given(values=INPUTS)
def test_rowwise_fp8_scales_each_token(values: np.ndarray) -> None:
    """Every token is e4m3 of itself over its own amax / 448, whatever the other tokens are."""
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(448)
    np.testing.assert_array_equal(e4m3(values / scales) * scales, rounded_input(values, "fp8_rowwise", None))
    alone = [rounded_input(token[None], "fp8_rowwise", None) for token in values]
    np.testing.assert_array_equal(np.concatenate(alone), rounded_input(values, "fp8_rowwise", None))


@given(values=INPUTS)
def test_block_fp8_scales_128_features_of_a_token(values: np.ndarray) -> None:
    """Each run of 128 features is rounded as a token of its own would be; the last may be shorter."""
    parts = [rounded_input(values[:, at : at + 128], "fp8_rowwise", None) for at in range(0, values.shape[1], 128)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), rounded_input(values, "fp8_block", None))


@given(values=INPUTS)
def test_mxfp8_scales_32_features_by_a_power_of_two(values: np.ndarray) -> None:
    """The smallest one under which nothing exceeds 448."""
    found = rounded_input(values, "mxfp8", None)
    for at in range(0, values.shape[1], 32):
        block = values[:, at : at + 32]
        power = np.exp2(np.ceil(np.log2(np.abs(block).max(axis=1, keepdims=True).astype(np.float64) / 448)))
        scale = power.astype(np.float32)
        np.testing.assert_array_equal(e4m3(block / scale) * scale, found[:, at : at + 32])


@given(values=INPUTS)
def test_nvfp4_scales_16_features_on_top_of_its_static_scale(values: np.ndarray) -> None:
    """The scale of a block is e4m3 of amax / 6 over the static one, and its elements are e2m1 of the rest."""
    whole = np.float32(np.abs(values).max() / np.float32(6 * 448))
    found = rounded_input(values, "nvfp4", float(whole))
    for at in range(0, values.shape[1], 16):
        block = values[:, at : at + 16]
        scale = e4m3(np.abs(block).max(axis=1, keepdims=True) / (np.float32(6) * whole)) * whole
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient = np.where(scale > 0, block / scale, 0)
        codes = np.clip(quotient, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
        np.testing.assert_array_equal(codes * scale, found[:, at : at + 16])


@pytest.mark.parametrize("number_format", ["fp8_rowwise", "fp8_block", "mxfp8"])
def test_tokens_of_zeros_stay_zeros(number_format: str) -> None:
    """Nothing is divided by zero."""
    assert not rounded_input(np.zeros((2, 40), np.float32), number_format, None).any()
    assert not rounded_input(np.zeros((2, 40), np.float32), "nvfp4", 0.01).any()


def test_a_static_scale_without_a_dynamic_format_is_that_of_fp8() -> None:
    """1.06 at scale 1 becomes the e4m3 value 1."""
    assert [[1.0]] == rounded_input(np.array([[1.06]], np.float32), "fp8", 1.0).tolist()


def test_entries_of_an_nvfp4_cache_are_rounded_head_by_head() -> None:
    """Blocks of 16 never reach into another head or token."""
    entries = np.random.default_rng(1).standard_normal((3, 2, 32)).astype(np.float32)
    found = rounded_entry(entries, "nvfp4", 0.01)
    one = rounded_entry(entries[1:2, 1:2, 16:], "nvfp4", 0.01)
    np.testing.assert_array_equal(one, found[1:2, 1:2, 16:])
    assert (entries != found).any()


def test_a_latent_cache_has_no_values_to_round() -> None:
    """Entries of width zero stay so, in every format of a cache."""
    none = np.empty((3, 1, 0), np.float32)
    assert (3, 1, 0) == rounded_entry(none, "nvfp4", 0.01).shape == rounded_entry(none, "fp8", 0.01).shape


def test_entries_of_an_int8_cache_are_whole_numbers_of_its_scale() -> None:
    """At scale 1/2 codes are -128 to 127: 0.3 becomes 0.5, 80 becomes 63.5, and -80 becomes -64."""
    entries = np.array([[[0.3, 80.0, -80.0, 0.1]]], np.float32)
    assert [[[0.5, 63.5, -64.0, 0.0]]] == rounded_entry(entries, "int8", 0.5).tolist()
