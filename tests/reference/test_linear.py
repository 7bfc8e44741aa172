"""Linear layers, plain and FP8."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from trtllm_kit.reference.linear import Linear


def test_bias_is_added_after_the_product() -> None:
    """Y = x Wᵀ + b."""
    layer = Linear("m", np.array([[1, 2], [3, 4], [5, 6]], np.float32), np.array([10, 20, 30], np.float32))
    assert [[13.0, 27.0, 41.0]] == layer(np.array([[1, 1]], np.float32)).tolist()


def test_a_quantised_layer_multiplies_e4m3_codes() -> None:
    """The output is (e4m3(x / s) W8ᵀ) * s * weight_scale, computed here with ml_dtypes' own e4m3."""
    random = np.random.default_rng(0)
    values = random.standard_normal((5, 64)).astype(np.float32)
    codes = random.standard_normal((16, 64)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    input_scale, weight_scale = np.float32(0.01), np.float32(0.003)
    rounded = (values / input_scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    expected = (rounded @ codes.T) * input_scale * weight_scale
    layer = Linear("m", codes * weight_scale, input_scale=float(input_scale))
    np.testing.assert_allclose(expected, layer(values), rtol=1e-4, atol=1e-6)


def test_the_observer_sees_the_input_before_it_is_rounded() -> None:
    """Calibration measures what the layer was given."""
    seen = {}
    layer = Linear("model.m", np.eye(2, dtype=np.float32), input_scale=1.0)
    layer(np.array([[1.06, 0.0]], np.float32), lambda name, values: seen.update({name: values.copy()}))
    assert np.float32(1.06) == seen["model.m"][0, 0]


def test_a_part_of_a_layer_makes_that_part_of_the_output() -> None:
    """Rows 1 and 2 of weight and bias give features 1 and 2, under the same name and input scale."""
    random = np.random.default_rng(2)
    whole = Linear("qkv_proj", *(random.standard_normal(shape).astype(np.float32) for shape in ((4, 3), (4,))), 0.01)
    values = random.standard_normal((5, 3)).astype(np.float32)
    part = whole.rows(1, 3)
    np.testing.assert_allclose(whole(values)[:, 1:3], part(values), rtol=1e-6)
    assert ("qkv_proj", 0.01) == (part.name, part.input_scale)
