"""What the reader of Phi-3 makes of its keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec, Rope
from trtllm_kit.spec.tensors import layer_tensors, parameters

from .configs import read

LONG = {"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [1.0, 2.0, 4.0, 8.0]}
LENGTHS = {"original_max_position_embeddings": 32, "max_position_embeddings": 128}


def phi(hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocab: int, **stated: Any) -> ModelSpec:
    """Read a Phi of these sizes, in the keys its published files have."""
    document = {
        "architectures": ["Phi3ForCausalLM"],
        "attention_bias": False,
        "auto_map": {},
        "bos_token_id": 1,
        "embd_pdrop": 0.0,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": width,
        "max_position_embeddings": 4096,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "original_max_position_embeddings": 4096,
        "resid_pdrop": 0.0,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": 2047,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": vocab,
    }
    return read_model_spec(document | stated, "config.json")


MINI4 = {
    "partial_rotary_factor": 0.75,
    "full_attn_mod": 1,
    "interpolate_factor": 1,
    "lm_head_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "max_position_embeddings": 131072,
    "sliding_window": 262144,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
}


@pytest.mark.parametrize(
    ("spec", "published"),
    [
        (phi(3072, 32, 32, 32, 8192, 32064), 3.82),
        (phi(5120, 40, 40, 10, 17920, 32064), 13.96),
        (phi(5120, 40, 40, 10, 17920, 100352, sliding_window=None), 14.66),
        (phi(3072, 32, 24, 8, 8192, 200064, **MINI4), 3.84),
    ],
    ids=["3-mini", "3-medium", "4", "4-mini"],
)
def test_counts_are_those_of_the_model_cards(spec: ModelSpec, published: float) -> None:
    """Parameters, thousand millions, lie within 1 % of what is published."""
    assert published == pytest.approx(parameters(spec) / 1e9, rel=0.01)


def test_projections_are_stored_together() -> None:
    """q, k and v are one tensor, gate and up another."""
    shapes = {fact.role.value: fact.shape for fact in layer_tensors(read("phi3"), 0)}
    assert {"qkv_proj": (64, 32), "o_proj": (32, 32), "gate_up_proj": (96, 32), "down_proj": (32, 48)} == {
        role: shape for role, shape in shapes.items() if role != "norm"
    }


def test_a_long_rope_stretches_by_the_claimed_length_over_the_trained_one() -> None:
    """128 claimed over 32 trained is a factor of 4, unless the section states one."""
    long = read("phi3", rope_scaling=LONG, **LENGTHS).rope
    assert (
        Rope(
            theta=1e4,
            kind="longrope",
            factor=4.0,
            original_max_position=32,
            short_factors=(1.0, 1.5, 2.0, 2.5),
            long_factors=(1.0, 2.0, 4.0, 8.0),
        )
        == long
    )
    stated = read("phi3", rope_scaling=LONG | {"factor": 2.0, "attention_factor": 1.25}, **LENGTHS).rope
    assert (2.0, 1.25) == (stated.factor, stated.magnitude)


@pytest.mark.parametrize(
    "changes",
    [
        LENGTHS | {"rope_scaling": LONG | {"type": "su"}},
        {"max_position_embeddings": 128, "rope_parameters": LONG | {"original_max_position_embeddings": 32}},
        LENGTHS | {"rope_parameters": LONG | {"rope_theta": 1e4, "original_max_position_embeddings": 32}},
    ],
    ids=["old name", "transformers 5", "both"],
)
def test_every_spelling_of_the_long_rope_means_the_same(changes: dict[str, Any]) -> None:
    """``su`` is the early name; the trained length may stand in the section or beside it."""
    assert read("phi3", rope_scaling=LONG, **LENGTHS).rope == read("phi3", **changes).rope


def test_the_trained_length_means_nothing_without_a_long_rope() -> None:
    """Phi-3-mini-4k and Phi-4 state it all the same."""
    assert Rope(theta=1e4) == read("phi3", original_max_position_embeddings=64).rope


@given(pairs=st.integers(1, 16))
def test_part_of_a_head_is_turned(pairs: int) -> None:
    """``partial_rotary_factor`` of 32 elements gives the turned ones; all of them is None."""
    share = pairs / 16
    beside = read("phi3", head_dim=32, partial_rotary_factor=share)
    inside = read("phi3", head_dim=32, rope_parameters={"partial_rotary_factor": share})
    assert beside == inside
    assert (None if pairs == 16 else 2 * pairs) == beside.layers[0].attention.rotary_dim


@pytest.mark.parametrize("window", [None, 16])
def test_one_window_for_all_layers_or_none(window: int | None) -> None:
    """``sliding_window`` holds for every layer; null is no window."""
    assert {window} == {layer.attention.window for layer in read("phi3", sliding_window=window).layers}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": LONG}, "original_max_position_embeddings is missing"),
        (LENGTHS | {"rope_scaling": {"type": "longrope"}}, "rope_scaling.short_factor is missing"),
        (LENGTHS | {"rope_scaling": LONG | {"long_factor": [1.0]}}, "(?s)long_factor is .*4 numbers"),
        (LENGTHS | {"rope_scaling": LONG | {"long_factor": [1.0, 0.0, 1.0, 1.0]}}, "long_factor is"),
        (LENGTHS | {"rope_scaling": LONG | {"short_mscale": 1.1}}, "short_mscale is 1.1"),
        (
            LENGTHS | {"rope_parameters": LONG | {"original_max_position_embeddings": 64}},
            "(?s)original_max_position_embeddings is 32.*64",
        ),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, 'rope_scaling.type is "yarn"'),
        ({"partial_rotary_factor": 0.4}, "partial_rotary_factor is 0.4"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5"),
        (
            {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 1.0}},
            "partial_rotary_factor is 0.5",
        ),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"full_attn_mod": 2}, "full_attn_mod is 2"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    """A missing figure, a list of the wrong length, and arithmetic the kit does not do are refused by name."""
    with pytest.raises(ModelConfigError, match=message):
        read("phi3", **changes)
