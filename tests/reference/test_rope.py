"""Rotary embedding: its frequencies by kind, and what a rotation must keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.specs import llama
from trtllm_kit.errors import UnknownArchitecture
from trtllm_kit.reference.rope import RotaryTable, Rotation, frequencies, magnitude, rotary_tables
from trtllm_kit.spec.model import ModelSpec, Rope

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


@pytest.mark.parametrize(("truncate", "expected"), [(True, [1.0, 1.0, 0.625, 0.25]), (False, [1.0, 1.0, 0.6557, 0.25])])
def test_the_ends_of_the_yarn_ramp_are_rounded_outward_unless_the_config_says_no(
    truncate: bool, expected: list[float]
) -> None:
    """32 rotations in 4096 tokens lie at dimension 1.31, one at 2.81: a ramp from 1 to 3, or (gpt-oss) as it is."""
    yarn = Rope(theta=1e4, kind="yarn", factor=4.0, original_max_position=4096, truncate=truncate)
    ratio = frequencies(yarn, 8) / frequencies(Rope(theta=1e4), 8)
    np.testing.assert_allclose(expected, ratio, rtol=1e-3)


LONG = Rope(
    theta=100.0,
    kind="longrope",
    factor=32.0,
    original_max_position=4096,
    short_factors=(1.0, 2.0),
    long_factors=(4.0, 8.0),
)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [(1, [1.0, 0.05]), (4096, [1.0, 0.05]), (4097, [0.25, 0.0125]), (None, [0.25, 0.0125])],
)
def test_a_long_rope_divides_by_the_long_factors_once_a_sequence_may_pass_the_trained_length(
    longest: int | None, expected: list[float]
) -> None:
    """4096 tokens take the short factors, one more the long ones; so does a length that is not known."""
    np.testing.assert_allclose(expected, frequencies(LONG, 4, longest), rtol=1e-6)


def test_the_magnitude_of_each_kind() -> None:
    """Root of 1 + ln 32 / ln 4096 for a long rope, 0.1 ln 4 + 1 for yarn, what is stated before either, else 1."""
    assert 1.1902381 == pytest.approx(magnitude(LONG))
    assert 1.0 == magnitude(LONG.model_copy(update={"factor": 1.0}))
    assert 1.25 == magnitude(LONG.model_copy(update={"magnitude": 1.25}))
    assert 1.1386294 == pytest.approx(magnitude(Rope(theta=1e4, kind="yarn", factor=4.0)))
    assert 1.0 == magnitude(LLAMA3)


def test_elements_without_a_position_stay() -> None:
    """A rotation of four elements leaves the rest of a head as it was, and turns the four as if they were a head."""
    head = np.random.default_rng(3).standard_normal((5, 2, 10)).astype(np.float32)
    rotation = RotaryTable(Rope(theta=100.0), 4).at(7, 5)
    turned = rotation.apply(head)
    np.testing.assert_array_equal(head[..., 4:], turned[..., 4:])
    np.testing.assert_array_equal(rotation.apply(head[..., :4]), turned[..., :4])
    assert not np.allclose(head[..., :4], turned[..., :4])


def test_layers_that_turn_alike_share_a_table(gemma: ModelSpec) -> None:
    """Gemma 3's sliding layers have one table, its full ones another."""
    tables = rotary_tables(gemma)
    assert [0, 1, 0, 1] == [list(dict.fromkeys(tables)).index(table) for table in tables]


@pytest.fixture(name="gemma")
def gemma_with_two_ropes() -> ModelSpec:
    """Make Llama with every other layer's rope its own."""
    model = llama(4, 32, 4, 2, 48, rope=Rope(theta=1e6))
    local = model.layers[0].attention.model_copy(update={"kind": "sliding", "window": 8, "rope": Rope(theta=1e4)})
    sliding = model.layers[0].model_copy(update={"mixer": local})
    return model.model_copy(update={"layers": (sliding, model.layers[1]) * 2})


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
