"""Rotary embedding: its frequencies by kind, and what a rotation must keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import UnknownArchitecture
from trtllm_kit.reference.rope import Rotation, frequencies
from trtllm_kit.spec.model import Rope

LLAMA3 = Rope(
    theta=500000.0, kind="llama3", factor=8.0, original_max_position=8192, low_freq_factor=1.0, high_freq_factor=4.0
)


def test_default_frequencies_fall_from_one_by_powers_of_theta() -> None:
    """Theta ** (-2 i / head_dim)."""
    np.testing.assert_allclose([1.0, 0.1, 0.01, 0.001], frequencies(Rope(theta=10000.0), 8), rtol=1e-6)


def test_linear_scaling_divides_every_frequency() -> None:
    """Positions are squeezed by the factor."""
    np.testing.assert_allclose([0.25, 0.025], frequencies(Rope(theta=100.0, kind="linear", factor=4.0), 4), rtol=1e-6)


def test_llama3_keeps_fast_waves_and_stretches_slow_ones() -> None:
    """Waves of at most 2048 tokens stay, waves of 8192 tokens and more are eight times longer."""
    plain, stretched = frequencies(Rope(theta=500000.0), 128), frequencies(LLAMA3, 128)
    waves = 2 * np.pi / plain
    np.testing.assert_allclose(np.ones((waves < 2048).sum()), (stretched / plain)[waves < 2048], rtol=1e-6)
    np.testing.assert_allclose(np.full((waves > 8192).sum(), 1 / 8), (stretched / plain)[waves > 8192], rtol=1e-6)
    between = (stretched / plain)[(waves > 2048) & (waves < 8192)]
    assert len(between) > 0
    assert ((between > 1 / 8) & (between < 1)).all()


def test_yarn_keeps_the_first_and_stretches_the_last_dimension() -> None:
    """The ramp runs from the plain frequency to the frequency divided by the factor."""
    yarn = Rope(theta=1e6, kind="yarn", factor=4.0, original_max_position=32768)
    ratio = frequencies(yarn, 128) / frequencies(Rope(theta=1e6), 128)
    np.testing.assert_allclose([1.0, 0.25], ratio[[0, -1]], rtol=1e-6)
    assert (np.diff(ratio) <= 1e-7).all()


def test_dynamic_scaling_is_refused_by_name() -> None:
    """Its frequencies depend on the prompt, so no static pass can run it."""
    with pytest.raises(UnknownArchitecture, match="dynamic"):
        frequencies(Rope(theta=10000.0, kind="dynamic", factor=2.0), 8)


@pytest.mark.parametrize("neighbours", [False, True])
@given(start=st.integers(0, 5000), shift=st.integers(0, 3000))
def test_scores_depend_on_the_distance_of_two_tokens_alone(neighbours: bool, start: int, shift: int) -> None:
    """Rotating query and key by the same shift leaves their product as it was."""
    random = np.random.default_rng(7)
    query, key = random.standard_normal((2, 1, 1, 8)).astype(np.float32)
    near = turn(query, start + 3, neighbours) @ turn(key, start, neighbours)
    far = turn(query, start + 3 + shift, neighbours) @ turn(key, start + shift, neighbours)
    np.testing.assert_allclose(near, far, atol=2e-2)


def turn(heads: np.ndarray, position: int, neighbours: bool) -> np.ndarray:
    """Rotate one head to a position and return it flat."""
    angles = position * frequencies(Rope(theta=10000.0), 8)[None, :].astype(np.float64)
    rotation = Rotation(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), neighbours)
    return rotation.apply(heads).ravel()


def test_the_two_layouts_pair_different_elements() -> None:
    """A quarter turn moves element 0 to 2 when halves are paired, and to 1 when neighbours are."""
    quarter = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)
    head = np.array([[[1, 0, 0, 0]]], np.float32)
    assert [0, 0, 1, 0] == Rotation(*quarter, False).apply(head).ravel().tolist()
    assert [0, 1, 0, 0] == Rotation(*quarter, True).apply(head).ravel().tolist()
