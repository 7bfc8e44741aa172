"""What the reader of gpt-oss makes of its keys."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import Attention, Experts, Routing
from trtllm_kit.spec.tensors import layer_tensors

from .configs import read, without


def test_attention_has_biases_and_sinks() -> None:
    """The first layer slides over the window, the second sees everything; nothing else differs."""
    spec = read("gpt_oss")
    sliding = Attention(
        kind="sliding", window=16, heads=4, kv_heads=2, head_dim=8, qkv_bias=True, out_bias=True, sinks=True
    )

    assert sliding == spec.layers[0].attention
    assert sliding.model_copy(update={"kind": "full", "window": None}) == spec.layers[1].attention


@pytest.mark.parametrize(
    ("types", "windows"),
    [
        (None, [16, None, 16, None]),
        (["full_attention", "full_attention", "full_attention", "sliding_attention"], [None, None, None, 16]),
    ],
)
def test_which_layers_slide(types: list[str] | None, windows: list[int | None]) -> None:
    """``layer_types`` says it; without it the even ones do."""
    layers = read("gpt_oss", layer_types=types).layers

    assert windows == [layer.attention.window for layer in layers]


def test_experts_have_biases_and_so_has_the_router() -> None:
    """The shares are a softmax over the chosen experts, which is one over all, scaled to sum to one."""
    block = read("gpt_oss").layers[0].feed_forward
    routing = Routing(scoring="softmax", normalise=True, bias=True)

    assert block == Experts(experts=4, per_token=2, intermediate=48, layout="gpt_oss", bias=True, routing=routing)
    assert ("clipped_swiglu", 7.0) == (read("gpt_oss").activation, read("gpt_oss").activation_limit)


def test_tensors_are_those_of_the_16_bit_layout() -> None:
    """Fused experts, input features first, with gate and up taking turns, and their biases."""
    facts = {fact.name.removeprefix("model.layers.0."): fact.shape for fact in layer_tensors(read("gpt_oss"), 0)}

    assert {
        "self_attn.sinks": (4,),
        "mlp.router.weight": (4, 32),
        "mlp.router.bias": (4,),
        "mlp.experts.gate_up_proj": (4, 32, 96),
        "mlp.experts.gate_up_proj_bias": (4, 96),
        "mlp.experts.down_proj": (4, 48, 32),
        "mlp.experts.down_proj_bias": (4, 32),
    }.items() <= facts.items()


def test_a_file_without_dtype_means_bfloat16() -> None:
    """The published files of gpt-oss state none."""
    document = without("gpt_oss", "torch_dtype")

    assert "bfloat16" == read_model_spec(document, "c").dtype


def test_the_other_spelling_of_the_chosen_experts() -> None:
    """The published files have ``experts_per_token`` too."""
    assert read("gpt_oss") == read("gpt_oss", experts_per_token=2)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"swiglu_limit": 5.0}, "swiglu_limit"),
        ({"experts_per_token": 3}, "experts_per_token"),
        ({"sliding_window": None}, "sliding_window"),
        ({"rope_scaling": None}, "rope_parameters"),
        ({"swiglu_alpha_gate_bias": 1.0}, "swiglu_alpha_gate_bias"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], key: str) -> None:
    """Another bound than the built-in one, a contradiction, and no window or rope."""
    with pytest.raises(ModelConfigError, match=f"config.json: {key} is "):
        read("gpt_oss", **changes)
