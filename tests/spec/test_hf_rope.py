"""Both spellings of the rotary embedding, and what is refused of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.model import Rope

from .configs import read

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA3_ROPE = Rope(
    theta=5e5, kind="llama3", factor=8.0, original_max_position=8192, low_freq_factor=1.0, high_freq_factor=4.0
)


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({}, Rope(theta=10_000.0)),
        ({"rope_theta": 1_000_000}, Rope(theta=1e6)),
        ({"rope_scaling": None, "rope_theta": 5e5}, Rope(theta=5e5)),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, Rope(theta=1e4, kind="linear", factor=2.0)),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, Rope(theta=1e4, kind="dynamic", factor=4.0)),
        ({"rope_scaling": LLAMA3, "rope_theta": 5e5}, LLAMA3_ROPE),
        ({"rope_scaling": LLAMA3 | {"type": "llama3"}, "rope_theta": 5e5}, LLAMA3_ROPE),
        ({"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}, LLAMA3_ROPE),
        ({"rope_parameters": LLAMA3 | {"rope_theta": 5e5}, "rope_theta": 5e5}, LLAMA3_ROPE),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 3.0, "factor": 1.0}}, Rope(theta=3.0)),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                    "beta_fast": 32,
                    "beta_slow": 1.0,
                    "attention_factor": None,
                    "truncate": True,
                }
            },
            Rope(theta=1e4, kind="yarn", factor=4.0, original_max_position=32768),
        ),
        ({"partial_rotary_factor": 1.0}, Rope(theta=1e4)),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 1}}, Rope(theta=1e4)),
    ],
)
def test_both_spellings(changes: dict[str, Any], rope: Rope) -> None:
    """``rope_theta`` with ``rope_scaling``, or ``rope_parameters`` with all of it, give the same facts."""
    assert rope == read("llama", **changes).rope


@pytest.mark.parametrize(("family", "theta"), [("llama", 1e4), ("mixtral", 1e6), ("llama4", 5e5), ("qwen3", 1e4)])
def test_base_when_the_file_has_none(family: str, theta: float) -> None:
    """An absent base is the family's ``default_theta`` of transformers."""
    assert theta == read(family).rope.theta


@pytest.mark.parametrize(("family", "neighbours"), [("llama", False), ("llama4", True), ("deepseek_v3", True)])
def test_which_elements_of_a_head_are_a_pair(family: str, neighbours: bool) -> None:
    """Llama 4 and DeepSeek turn neighbours, the others the two halves of a head."""
    assert neighbours == read(family).rope.interleaved


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("changes", "magnitude"),
    [
        ({}, None),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)),
        ({"mscale": 2.0, "mscale_all_dim": 1.0, "factor": 1.0}, 1.0),
    ],
)
def test_the_magnitude_of_yarn(changes: dict[str, float], magnitude: float | None) -> None:
    """Stated, or the quotient of the two mscale weights, or left to yarn's own rule."""
    assert magnitude == read("llama", rope_scaling=YARN | changes).rope.magnitude


def test_the_ramp_of_yarn_is_read() -> None:
    """Bounds and rounding are facts of the file."""
    rope = read("llama", rope_scaling=YARN | {"beta_fast": 16, "beta_slow": 2, "truncate": False}).rope

    assert (16.0, 2.0, False) == (rope.beta_fast, rope.beta_slow, rope.truncate)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_theta": -1.0}, "rope_theta is -1.0"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 2e4}}, "(?s)rope_theta is 10000.0.*20000"),
        ({"rope_scaling": []}, r"rope_scaling is \[\]"),
        ({"rope_scaling": {"type": "longrope"}}, 'rope_scaling.type is "longrope"'),
        ({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2}}, "rope_scaling.type is"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor is 0"),
        ({"rope_scaling": {"type": "yarn", "factor": 2}}, "original_max_position_embeddings is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "alpha": 3}}, "rope_scaling.alpha is 3"),
        ({"rope_scaling": {"rope_type": "default", "factor": 2}}, "rope_scaling.factor is 2"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters.full_attention is"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor is 0.5"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        (
            {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            "(?s)rope_scaling is .*rope_parameters",
        ),
        (
            {
                "rope_scaling": LLAMA3
                | {"rope_type": "yarn", "low_freq_factor": None, "high_freq_factor": None, "mscale": 1.0}
            },
            "rope_scaling.mscale_all_dim is missing",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    """A contradiction, a missing figure or an unknown parameter of the rope is an error by name."""
    with pytest.raises(ModelConfigError, match=message):
        read("llama", **changes)


def test_every_missing_figure_is_listed() -> None:
    """An empty llama3 section lacks four figures."""
    with pytest.raises(ModelConfigError) as caught:
        read("llama", rope_scaling={"rope_type": "llama3"})

    assert 4 == len(caught.value.problems)
