"""What the reader of DeepSeek-V3 makes of its keys."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.model import Attention, Dense, Experts, Latent, Routing
from trtllm_kit.spec.tensors import Role, layer_tensors, model_tensors, prediction_tensors

from .configs import read

YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}


def test_latent_attention() -> None:
    """One cached vector serves all heads; a head is its two parts together."""
    latent = Latent(query_rank=12, kv_rank=16, nope_dim=8, rope_dim=4, value_dim=6)
    wanted = Attention(kind="full", heads=4, kv_heads=1, head_dim=12, latent=latent)

    assert wanted == read("deepseek_v3").layers[0].attention


def test_the_query_may_be_projected_at_once() -> None:
    """DeepSeek-V2-Lite's ``q_lora_rank: null``."""
    spec = read("deepseek_v3", q_lora_rank=None)
    names = [fact.name for fact in layer_tensors(spec, 0) if "self_attn.q" in fact.name]

    assert ["model.layers.0.self_attn.q_proj.weight"] == names


@pytest.mark.parametrize("scaling", [None, YARN])
def test_without_mscale_the_scores_are_scaled_by_the_root_alone(scaling: Any) -> None:
    """Yarn by itself does not touch the scale."""
    assert read("deepseek_v3", rope_scaling=scaling).layers[0].attention.scale is None


@given(weight=st.floats(0.1, 2.0), factor=st.floats(1.0, 100.0))
def test_mscale_all_dim_multiplies_queries_and_keys(weight: float, factor: float) -> None:
    """Both carry 0.1 w ln(factor) + 1, so the scores carry its square, and cosine and sine are divided by it."""
    scaling = YARN | {"factor": factor, "mscale": 1.0, "mscale_all_dim": weight}
    spec = read("deepseek_v3", rope_scaling=scaling)
    one, all_dim = (0.1 * w * math.log(factor) + 1.0 for w in (1.0, weight))

    assert pytest.approx(all_dim**2 / 12**0.5) == (spec.layers[0].attention.scale or 12**-0.5)
    assert pytest.approx(one / all_dim) == spec.rope.magnitude


def test_experts() -> None:
    """Sigmoid scores, a choice bias, groups, and a shared expert as wide as two."""
    block = read("deepseek_v3").layers[1].feed_forward
    routing = Routing(scoring="sigmoid", choice_bias=True, groups=4, groups_per_token=2, scale=2.5)
    wanted = Experts(
        experts=8, per_token=2, intermediate=16, shared_intermediate=32, layout="deepseek", routing=routing
    )

    assert wanted == block


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({}, [0]),
        ({"first_k_dense_replace": 3}, [0, 1, 2]),
        ({"first_k_dense_replace": 0}, []),
        ({"moe_layer_freq": 2}, [0, 1, 3]),
    ],
)
def test_which_layers_are_dense(changes: dict[str, Any], dense: list[int]) -> None:
    """The first ones, and those that ``moe_layer_freq`` does not divide."""
    layers = read("deepseek_v3", **changes).layers

    assert dense == [number for number, layer in enumerate(layers) if isinstance(layer.feed_forward, Dense)]


def test_a_model_of_experts_alone_needs_no_dense_width() -> None:
    """``intermediate_size`` is that of the dense layers."""
    spec = read("deepseek_v3", first_k_dense_replace=0, intermediate_size=None)

    assert all(isinstance(layer.feed_forward, Experts) for layer in spec.layers)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"qk_rope_head_dim": 3}, "qk_rope_head_dim"),
        ({"head_dim": 12}, "head_dim"),
        ({"qk_head_dim": 8}, "qk_head_dim"),
        ({"rope_interleave": False}, "rope_interleave"),
        ({"attention_bias": True}, "attention_bias"),
        ({"topk_method": "greedy"}, "topk_method"),
        ({"scoring_func": "softmax"}, "scoring_func"),
        ({"norm_topk_prob": False}, "norm_topk_prob"),
        ({"topk_group": 5}, "topk_group"),
        ({"n_group": 3}, "n_group"),
        ({"n_group": 8, "topk_group": 2}, "n_group"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"index_topk_heads": 4}, "index_topk_heads"),
        ({"rope_scaling": YARN | {"mscale_all_dim": 1.0}}, "rope_scaling.mscale"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], key: str) -> None:
    """What contradicts, what no release computes, and what the kit does not know is an error by name."""
    with pytest.raises(ModelConfigError, match=f"config.json: {key} is "):
        read("deepseek_v3", **changes)


def test_widths_that_repeat_what_follows_pass() -> None:
    """Transformers 5 writes ``head_dim`` (the turned part) and ``qk_head_dim`` beside the parts."""
    assert read("deepseek_v3") == read("deepseek_v3", head_dim=4, qk_head_dim=12, rope_interleave=True)


def test_prediction_layers_stand_behind_the_model() -> None:
    """They are named and shaped like the last layer, with an embedding and a head of their own, and count apart."""
    without, spec = read("deepseek_v3"), read("deepseek_v3", num_nextn_predict_layers=1)
    names = {fact.name: fact.shape for fact in prediction_tensors(spec)}
    last = {fact.name.replace("layers.3.", "layers.4."): fact.shape for fact in layer_tensors(spec, 3)}

    assert 1 == spec.prediction_layers
    assert list(model_tensors(without)) == list(model_tensors(spec))
    assert last.items() <= names.items()
    assert {
        "model.layers.4.embed_tokens.weight": (64, 32),
        "model.layers.4.enorm.weight": (32,),
        "model.layers.4.hnorm.weight": (32,),
        "model.layers.4.eh_proj.weight": (32, 64),
        "model.layers.4.shared_head.norm.weight": (32,),
        "model.layers.4.shared_head.head.weight": (64, 32),
    } == {name: shape for name, shape in names.items() if name not in last}
    assert [] == list(prediction_tensors(without))


def test_roles_of_a_layer_with_experts_in_file_order() -> None:
    """Squeezed and expanded projections, router with choice bias, routed and shared experts."""
    roles = [fact.role for fact in layer_tensors(read("deepseek_v3"), 1)]

    assert [
        Role.NORM, Role.QUERY_DOWN, Role.NORM, Role.QUERY_UP, Role.LATENT_DOWN, Role.NORM, Role.LATENT_UP,
        Role.ATTENTION_OUT, Role.NORM, Role.ROUTER, Role.CHOICE_BIAS, Role.GATE, Role.UP, Role.DOWN, Role.SHARED_GATE,
        Role.SHARED_UP, Role.SHARED_DOWN,
    ] == roles  # fmt: skip
