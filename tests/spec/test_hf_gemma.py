"""What the readers of Gemma 2 and 3 make of their keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec, Rope
from trtllm_kit.spec.tensors import layer_tensors, parameters

from .configs import config, read, without

GEMMA2: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "sliding_window_size": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "cache_implementation": "hybrid",
    "torch_dtype": "float32",
}


def gemma2(hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, width: int, scalar: int) -> ModelSpec:
    """Read a Gemma 2 of these sizes, in the keys its published files have."""
    sizes = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": width,
        "query_pre_attn_scalar": scalar,
    }
    return read_model_spec(GEMMA2 | sizes, "config.json")


def gemma3(hidden: int, layers: int, width: int, **stated: Any) -> ModelSpec:
    """Read a Gemma 3 with vision, whose text part states no more than a published file does."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_hidden_layers": layers,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    document = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": text | stated,
        "vision_config": {"hidden_size": 1152},
        "eos_token_id": [1, 106],
        "mm_tokens_per_image": 256,
        "torch_dtype": "bfloat16",
    }
    return read_model_spec(document, "config.json")


GEMMA3_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
    "vocab_size": 262144,
}


@pytest.mark.parametrize(
    ("spec", "published"),
    [
        (gemma2(2304, 26, 8, 4, 256, 9216, 256), 2.614),
        (gemma2(3584, 42, 16, 8, 256, 14336, 256), 9.242),
        (gemma2(4608, 46, 32, 16, 128, 36864, 144), 27.227),
        (read_model_spec(GEMMA3_1B, "config.json"), 1.000),
        (gemma3(2560, 34, 10240), 3.880),
        (gemma3(3840, 48, 15360, num_attention_heads=16, num_key_value_heads=8), 11.766),
        (
            gemma3(
                5376,
                62,
                21504,
                num_attention_heads=32,
                num_key_value_heads=16,
                head_dim=128,
                query_pre_attn_scalar=168,
            ),
            27.009,
        ),
    ],
    ids=["2-2b", "2-9b", "2-27b", "3-1b", "3-4b", "3-12b", "3-27b"],
)
def test_counts_are_those_of_the_technical_reports(spec: ModelSpec, published: float) -> None:
    """Parameters of the text part, thousand millions, lie within 1 % of embedding and other parameters published."""
    assert published == pytest.approx(parameters(spec) / 1e9, rel=0.01)


def test_a_text_part_that_states_little_is_completed_as_transformers_does() -> None:
    """Heads, widths, lengths, tokens and bases are those of ``Gemma3TextConfig``; null stays null."""
    spec = gemma3(2560, 34, 10240)
    attention = spec.layers[5].attention
    assert (8, 4, 256, 256**-0.5) == (attention.heads, attention.kv_heads, attention.head_dim, attention.scale)
    assert (262208, 131072, 1e-6, True) == (spec.vocab, spec.max_position, spec.norm_epsilon, spec.tied_embeddings)
    assert (2, (1, 106), None) == (spec.bos_token, spec.eos_tokens, spec.logit_softcap)
    assert ("language_model.model.", "bfloat16") == (spec.prefix, spec.dtype)
    assert Rope(theta=1e6, kind="linear", factor=8.0) == spec.rope
    assert None is gemma3(2560, 34, 10240, sliding_window=None).layers[0].attention.window


def test_every_sixth_layer_of_gemma3_is_full_and_the_others_have_a_rope_of_their_own() -> None:
    """Layers 5, 11, ... look back at everything and turn by the model's rope, the others by base 10,000."""
    layers = gemma3(2560, 34, 10240).layers
    full = [number for number, layer in enumerate(layers) if layer.attention.kind == "full"]
    assert [5, 11, 17, 23, 29] == full
    assert {1024} == {layer.attention.window for number, layer in enumerate(layers) if number not in full}
    assert {None} == {layers[number].attention.rope for number in full}
    assert Rope(theta=1e4) == layers[0].attention.rope


def test_both_spellings_of_gemma3s_ropes_mean_the_same() -> None:
    """``rope_local_base_freq`` of transformers 4 is the sliding section of 5, ``rope_scaling`` the full one."""
    old = read("gemma3", rope_theta=2e6, rope_local_base_freq=3e4, rope_scaling={"rope_type": "linear", "factor": 8.0})
    new = read(
        "gemma3",
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 3e4},
            "rope_type": "default",
        },
    )
    assert old == new
    assert Rope(theta=3e4) == new.layers[0].attention.rope


@given(pattern=st.integers(1, 8), count=st.integers(1, 20))
def test_the_pattern_of_windows_is_that_of_the_stated_layer_types(pattern: int, count: int) -> None:
    """``sliding_window_pattern`` and the ``layer_types`` that follow from it give the same layers."""
    types = ["full_attention" if (number + 1) % pattern == 0 else "sliding_attention" for number in range(count)]
    assert read("gemma3", num_hidden_layers=count, sliding_window_pattern=pattern) == read(
        "gemma3", num_hidden_layers=count, layer_types=types
    )


def test_gemma2_slides_on_every_other_layer_and_caps_scores_and_logits() -> None:
    """Layers 0, 2, ... have the window of 4096; 50 and 30 are the caps when the file states none."""
    spec = read("gemma2")
    assert [4096, None, 4096, None] == [layer.attention.window for layer in spec.layers]
    assert (50.0, 30.0) == (spec.layers[0].attention.softcap, spec.logit_softcap)
    assert None is read("gemma2", attn_logit_softcapping=None).layers[0].attention.softcap


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_what_every_gemma_does(family: str) -> None:
    """Embeddings grow by the root of the hidden size, norms are stored less one, the activation is tanh's gelu."""
    spec = read(family)
    assert (32**0.5, True, "gelu_tanh", True) == (
        spec.embedding_scale,
        spec.unit_offset_norms,
        spec.activation,
        spec.tied_embeddings,
    )


def test_gemma_has_four_norms_a_layer() -> None:
    """Each part has a norm before it and one behind it, under names of their own."""
    names = [fact.name.removeprefix("model.layers.0.") for fact in layer_tensors(read("gemma2"), 0)]
    assert [
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        "pre_feedforward_layernorm.weight",
        "post_feedforward_layernorm.weight",
    ] == [name for name in names if "norm" in name]


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gemma2", {"hidden_activation": "gelu"}, 'hidden_activation is "gelu"'),
        ("gemma2", {"hidden_act": "silu"}, 'hidden_act is "silu"'),
        ("gemma2", {"sliding_window": 8, "sliding_window_size": 9}, "sliding_window_size is 9"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ("gemma2", {"rope_local_base_freq": 1e4}, "rope_local_base_freq is 10000"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true"),
        ("gemma3", {"rope_parameters": {"full_attention": {}, "other_attention": {}}}, "other_attention is"),
        ("gemma3", {"rope_parameters": {"full_attention": {}, "rope_type": "linear"}}, 'rope_type is "linear"'),
        (
            "gemma3",
            {"rope_local_base_freq": 1e4, "rope_parameters": {"sliding_attention": {"rope_theta": 2e4}}},
            "(?s)rope_local_base_freq is 10000.*20000",
        ),
    ],
)
def test_what_is_refused(family: str, changes: dict[str, Any], message: str) -> None:
    """Arithmetic the kit does not do, and two keys that contradict each other, are refused by name."""
    with pytest.raises(ModelConfigError, match=message):
        read(family, **changes)


def test_widths_and_layers_are_never_filled_in() -> None:
    """The three sizes every published file states are required."""
    for key in ("hidden_size", "intermediate_size", "num_hidden_layers"):
        with pytest.raises(ModelConfigError, match=f"{key} is missing"):
            read_model_spec(without("gemma3", key), "config.json")


def test_a_stated_size_wins_over_the_default() -> None:
    """The family's defaults stand behind the file."""
    assert 64 == read_model_spec(config("gemma3"), "config.json").vocab
