"""The readers of hybrids and of the families that are planned alone: what a layer is, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cli import MODELS
from trtllm_kit.errors import InternalError, ModelConfigError, UnknownArchitecture
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import Attention, DeltaNet, Dense, Experts, Mamba, ModelSpec
from trtllm_kit.spec.planned import require_converted
from trtllm_kit.spec.tensors import model_tensors

PLANNED = (
    "gemma-4", "mimo-7b", "mimo-v2", "minimax-m2", "nemotron-3", "nemotron-h", "nemotron-nas", "qwen3-vl",
    "qwen3-vl-moe", "qwen3.5", "qwen3.5-moe", "step-3.7",
)  # fmt: skip


def document(name: str) -> dict[str, Any]:
    """Return one of the small configurations."""
    loaded: dict[str, Any] = json.loads((MODELS / f"{name}.json").read_text("utf-8"))
    return loaded


def changed(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a small configuration with keys of its text model replaced."""
    given = document(name)
    given.get("text_config", given).update(changes)
    return given


def spec(name: str, **changes: Any) -> ModelSpec:
    """Read one with changes."""
    return read_model_spec(changed(name, changes), name)


def test_every_fourth_layer_of_qwen3_5_attends_with_a_gate() -> None:
    """The others are delta-nets; a quarter of a head is turned."""
    layers = spec("qwen3.5").layers

    assert [DeltaNet, DeltaNet, DeltaNet, Attention] == [type(layer.mixer) for layer in layers]
    assert ("element", 2) == (layers[3].attention.gate, layers[3].attention.rotary_dim)


def test_listed_layer_types_win_over_the_interval() -> None:
    """``layer_types`` says which layers attend, whatever the interval."""
    types = ["full_attention", "linear_attention", "linear_attention", "linear_attention"]
    assert [Attention, DeltaNet, DeltaNet, DeltaNet] == [
        type(layer.mixer) for layer in spec("qwen3.5", layer_types=types).layers
    ]


def test_a_layer_of_a_hybrid_is_one_thing() -> None:
    """M is a Mamba, E experts without a gate in a latent width, * an attention without rope; two layers predict."""
    model = spec("nemotron-3")

    assert [Mamba, None, Mamba, Attention, None, Mamba, None] == [
        None if layer.mixer is None else type(layer.mixer) for layer in model.layers
    ]
    blocks = [layer.feed_forward for layer in model.layers if isinstance(layer.feed_forward, Experts)]
    assert [(False, 12, 40)] * 3 == [(block.gated, block.latent, block.shared_intermediate) for block in blocks]
    assert not model.attentions[0].rotary
    assert 2 == len(model.prediction_step)


def test_words_and_letters_name_the_same_layers() -> None:
    """``layers_block_type`` with the words of either release of transformers is ``hybrid_override_pattern``."""
    for words in (["mamba", "mlp", "mamba", "attention", "mlp"],
                  ["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"]):  # fmt: skip
        listed = spec("nemotron-h", hybrid_override_pattern=None, layers_block_type=words)
        assert spec("nemotron-h").layers == listed.layers


def test_a_thinned_llama_lacks_parts_and_their_norms() -> None:
    """A layer without attention has no input norm, one without block no second norm; widths are whole 256s."""
    model = spec("nemotron-nas")
    names = {fact.name for fact in model_tensors(model)}

    assert [True, False, True] == [layer.mixer is not None for layer in model.layers]
    assert [1024, 256, None] == [
        layer.feed_forward.intermediate if isinstance(layer.feed_forward, Dense) else None for layer in model.layers
    ]
    assert "model.layers.1.input_layernorm.weight" not in names
    assert "model.layers.2.post_attention_layernorm.weight" not in names
    assert "model.layers.0.input_layernorm.weight" in names


def test_full_layers_of_gemma4_take_values_from_keys() -> None:
    """They are wider, have fewer KV heads and no projection for values; the sliding ones have all."""
    model = spec("gemma-4")
    full, local = model.layers[5].attention, model.layers[0].attention

    assert (16, 1, True, 4) == (full.head_dim, full.kv_heads, full.value_is_key, full.rotary_dim)
    assert (8, 2, False, 16) == (local.head_dim, local.kv_heads, local.value_is_key, local.window)
    assert not [fact.name for fact in model_tensors(model) if fact.name.endswith("5.self_attn.v_proj.weight")]


def test_values_of_mimo_v2_are_narrower_than_keys() -> None:
    """Keys of 12, values of 8; sliding layers have twice the KV heads, and sinks."""
    full, local = spec("mimo-v2").attentions[:2]
    assert (12, 8, 1, False) == (full.head_dim, full.value_width, full.kv_heads, full.sinks)
    assert (12, 8, 2, True) == (local.head_dim, local.value_width, local.kv_heads, local.sinks)


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("qwen3.5", {"mtp_use_dedicated_embeddings": True}, "text_config.mtp_use_dedicated_embeddings"),
        ("qwen3.5", {"linear_num_value_heads": 3}, "text_config.linear_num_value_heads"),
        ("qwen3.5", {"mamba_ssm_dtype": "int8"}, "text_config.mamba_ssm_dtype"),
        ("qwen3.5", {"layer_types": ["mamba"] * 4}, "text_config.layer_types"),
        ("qwen3.5-moe", {"attention_multiplier": 2.0}, "text_config.attention_multiplier"),
        ("gemma-4", {"num_kv_shared_layers": 2}, "text_config.num_kv_shared_layers"),
        ("gemma-4", {"hidden_size_per_layer_input": 16}, "text_config.hidden_size_per_layer_input"),
        ("gemma-4", {"use_bidirectional_attention": "all"}, "text_config.use_bidirectional_attention"),
        ("nemotron-3", {"hybrid_override_pattern": "MEX*EME"}, "hybrid_override_pattern"),
        ("nemotron-3", {"num_hidden_layers": 6}, "num_hidden_layers"),
        ("nemotron-3", {"n_groups": 3}, "n_groups"),
        ("nemotron-3", {"use_bias": True}, "use_bias"),
        ("minimax-m2", {"attn_type_list": [1, 1, 1, 0]}, "attn_type_list"),
        ("minimax-m2", {"shared_intermediate_size": 8}, "shared_intermediate_size"),
        ("mimo-v2", {"n_shared_experts": 1}, "n_shared_experts"),
        ("mimo-v2", {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
        ("mimo-7b", {"use_mrope": True}, "use_mrope"),
        ("step-3.7", {"use_head_wise_attn_gate": True}, "use_head_wise_attn_gate"),
        ("step-3.7", {"scoring_func": "softmax"}, "scoring_func"),
    ],
)
def test_what_changes_the_arithmetic_is_refused_by_name(name: str, changes: dict[str, Any], key: str) -> None:
    """One key, one problem: the message names it."""
    with pytest.raises(ModelConfigError, match=rf"^[^\n]*: {key.replace('.', '[.]')} is "):
        spec(name, **changes)


def test_a_thinned_layer_that_is_linear_is_refused_by_its_place() -> None:
    """``replace_with_linear`` in one entry of ``block_configs``."""
    given = document("nemotron-nas")
    given["block_configs"][1]["ffn"]["replace_with_linear"] = True
    with pytest.raises(ModelConfigError, match=r"block_configs\[1\]\.ffn\.replace_with_linear is true"):
        read_model_spec(given, "nas")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("qwen3.5", {"mtp_num_hidden_layers": 0, "attention_dropout": 0.0, "use_cache": True}),
        ("qwen3.5-moe", {"router_aux_loss_coef": 0.01, "mlp_only_layers": []}),
        ("gemma-4", {"num_kv_shared_layers": 0, "use_double_wide_mlp": False}),
        ("nemotron-3", {"time_step_limit": [0.0, 1.0], "chunk_size": 256, "rescale_prenorm_residual": False}),
        ("minimax-m2", {"num_mtp_modules": 3, "use_mtp": True}),
        ("mimo-v2", {"routed_scaling_factor": None, "n_shared_experts": None}),
    ],
)
def test_what_does_not_matter_is_passed_over(name: str, changes: dict[str, Any]) -> None:
    """Neutral values and keys of training change no layer."""
    assert spec(name).layers == spec(name, **changes).layers


@pytest.mark.parametrize("name", PLANNED)
def test_what_is_planned_alone_is_not_converted(name: str) -> None:
    """Conversion refuses the family by name, and a spec survives JSON."""
    model = spec(name)
    with pytest.raises(UnknownArchitecture, match="is planned, not converted"):
        require_converted(model)
    assert model == ModelSpec.model_validate_json(model.model_dump_json())


def test_a_mamba_has_no_attention_to_ask_for() -> None:
    """Who asks without looking meets an error that says what the layer is."""
    with pytest.raises(InternalError, match="its mixer is mamba"):
        _ = spec("nemotron-h").layers[0].attention
    with pytest.raises(InternalError, match="it is a mixer alone"):
        _ = spec("nemotron-h").layers[0].block
