"""What the readers of sparse, compressed and delta attention make of their keys."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.mixers import Attention, Indexer, KimiDelta
from trtllm_kit.spec.model import Dense, Experts, ModelSpec
from trtllm_kit.spec.tensors import layer_tensors, outer_tensors, prediction_tensors

from .sparse_configs import DOCUMENTS, read_sparse, sparse_config

LIGHTNING = Indexer(heads=2, head_dim=8, chosen=16)


def attention_of(spec: ModelSpec, number: int) -> Attention:
    """Return the attention of a layer."""
    return spec.layers[number].attention


def names_of(spec: ModelSpec, number: int) -> set[str]:
    """Return the tensor names of a layer behind its number."""
    base = f"{spec.prefix}layers.{number}."
    return {fact.name.removeprefix(base) for fact in layer_tensors(spec, number)}


@pytest.mark.parametrize("family", DOCUMENTS)
def test_these_families_are_planned_and_not_converted(family: str) -> None:
    """The kit has no forward pass for them."""
    spec = read_sparse(family)

    assert family == spec.family
    assert not spec.converted


def test_every_layer_of_deepseek_v32_has_an_indexer() -> None:
    """Its heads, widths and top-k are read; latent attention is that of DeepSeek-V3."""
    spec = read_sparse("deepseek_v32")

    assert [LIGHTNING] * 4 == [attention_of(spec, number).indexer for number in range(4)]
    assert {"self_attn.indexer.wq_b.weight", "self_attn.indexer.weights_proj.weight"} <= names_of(spec, 1)


@pytest.mark.parametrize(
    ("changes", "full"),
    [
        ({}, [0, 2]),
        ({"indexer_types": None}, [0, 1, 2, 3]),
        ({"indexer_types": None, "index_topk_pattern": "FFSS"}, [0, 1]),
        ({"indexer_types": None, "index_topk_freq": 2, "index_skip_topk_offset": 2}, [0, 1, 3]),
    ],
)
def test_which_layers_of_glm_have_an_indexer(changes: dict[str, Any], full: list[int]) -> None:
    """The list says it, else a word of F and S, else every so many-th layer; the others store none."""
    spec = read_sparse("glm_moe_dsa", **changes)

    assert full == [number for number in range(4) if attention_of(spec, number).indexer is not None]
    assert full == [number for number in range(4) if "self_attn.indexer.wk.weight" in names_of(spec, number)]


def test_a_prediction_layer_of_glm_has_an_indexer_though_the_last_layer_has_none() -> None:
    """Its tensors are those of a layer with indexer, without an embedding and a head of its own."""
    names = {fact.name for fact in prediction_tensors(read_sparse("glm_moe_dsa"))}

    assert "model.layers.4.self_attn.indexer.wk.weight" in names
    assert "model.layers.4.embed_tokens.weight" not in names


def test_the_head_dim_of_glm_is_replaced_by_its_class() -> None:
    """Published files state the turned part or the other one."""
    assert read_sparse("glm_moe_dsa", head_dim=4) == read_sparse("glm_moe_dsa", head_dim=8)


def test_layers_of_deepseek_v4_by_their_ratio() -> None:
    """0 is a window, 4 has overlapping vectors and an indexer, 128 longer spans; the two last have yarn."""
    spec = read_sparse("deepseek_v4")
    found = [attention_of(spec, number) for number in range(4)]

    assert [0, 4, 128, 4] == [one.compression.ratio for one in found if one.compression]
    assert [None, LIGHTNING, None, LIGHTNING] == [one.indexer for one in found]
    assert [16, 16, 16, 16] == [one.window for one in found]
    assert [None, 160_000.0, 160_000.0, 160_000.0] == [one.rope and one.rope.theta for one in found]
    assert (10_000.0, "default") == (spec.rope.theta, spec.rope.kind)


def test_a_table_names_the_experts_of_the_first_layers() -> None:
    """They have no choice bias, and one entry for each word and chosen expert."""
    spec = read_sparse("deepseek_v4")
    shapes = {fact.name: fact.shape for fact in layer_tensors(spec, 0)}

    assert (64, 2) == shapes["layers.0.ffn.gate.tid2eid"]
    assert "ffn.gate.bias" not in names_of(spec, 0)
    assert "ffn.gate.bias" in names_of(spec, 1)
    assert "ffn.gate.tid2eid" not in names_of(spec, 1)


def test_hyper_connections_mix_before_and_behind_each_part() -> None:
    """Two streams: (2 + 2) x 2 mixes of 2 x 32 elements, for attention and block, and one mix before the head."""
    spec = read_sparse("deepseek_v4")
    shapes = {fact.name: fact.shape for fact in (*layer_tensors(spec, 0), *outer_tensors(spec))}

    assert [(8, 64), (8, 64)] == [shapes[f"layers.0.hc_{part}_fn"] for part in ("attn", "ffn")]
    assert (2, 64) == shapes["hc_head_fn"]
    assert {"embed.weight", "norm.weight", "head.weight"} <= shapes.keys()


def test_kimi_k3_numbers_its_layers_from_one() -> None:
    """Delta attention on the layers of ``kda_layers``, gated latent attention without positions on the others."""
    spec = read_sparse("kimi_linear")
    delta = KimiDelta(heads=4, head_dim=8, conv_kernel=4, full_gate=True)

    assert [delta, delta] == [layer.mixer for layer in spec.layers[:2]]
    assert [(False, "element")] * 2 == [(one.rotary, one.gate) for one in spec.attentions]
    assert [Dense, Experts, Experts, Experts] == [type(layer.block) for layer in spec.layers]


def test_what_kimi_k3_stores_beside_its_parts() -> None:
    """Attention residuals in each layer and behind the last, and a norm between the experts and the way back."""
    spec = read_sparse("kimi_linear")
    outer = {fact.name for fact in outer_tensors(spec)}

    assert {
        "self_attention_res_proj.weight", "mlp_res_norm.weight", "block_sparse_moe.routed_expert_norm.weight",
        "self_attn.f_b_proj.weight", "self_attn.g_proj.weight",
    } <= names_of(spec, 1)  # fmt: skip
    assert "language_model.model.output_attn_res_proj.weight" in outer


def test_a_squeezed_gate_is_two_projections() -> None:
    """As in Kimi Linear, where ``use_full_rank_gate`` is not there."""
    section = DOCUMENTS["kimi_linear"]["text_config"]["linear_attn_config"] | {"use_full_rank_gate": False}
    names = names_of(read_sparse("kimi_linear", linear_attn_config=section), 1)

    assert {"self_attn.g_a_proj.weight", "self_attn.g_b_proj.weight"} <= names
    assert "self_attn.g_proj.weight" not in names


def test_sparse_layers_of_minimax_m3_choose_blocks() -> None:
    """Only the listed layers have an indexer; 4 blocks of 16 tokens are chosen."""
    spec = read_sparse("minimax_m3")
    indexer = Indexer(heads=2, head_dim=8, chosen=4, block=16, layout="minimax")

    assert [None, None, indexer, indexer] == [one.indexer for one in spec.attentions]
    assert {"self_attn.index_q_proj.weight", "self_attn.index_k_norm.weight"} <= names_of(spec, 2)
    assert not any("index_" in name for name in names_of(spec, 1))


def test_a_minimax_m3_without_sparse_attention() -> None:
    """The switch wins over the list."""
    section = DOCUMENTS["minimax_m3"]["text_config"]["sparse_attention_config"] | {"use_sparse_attention": False}

    assert [None] * 4 == [one.indexer for one in read_sparse("minimax_m3", sparse_attention_config=section).attentions]


@pytest.mark.parametrize(
    ("family", "changes", "key"),
    [
        ("deepseek_v32", {"index_topk": None}, "index_topk"),
        ("deepseek_v32", {"head_dim": 12}, "head_dim"),
        ("deepseek_v32", {"index_shape": 3, "indexer_scale": 2}, "indexer_scale"),
        ("glm_moe_dsa", {"indexer_types": ["shared", "full", "full", "full"]}, "indexer_types"),
        ("glm_moe_dsa", {"indexer_types": ["full"]}, "indexer_types"),
        ("glm_moe_dsa", {"indexer_types": None, "index_topk_pattern": "FX"}, "index_topk_pattern"),
        ("glm_moe_dsa", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ("glm_moe_dsa", {"indexer_rope_interleave": False}, "indexer_rope_interleave"),
        ("deepseek_v4", {"compress_ratios": [0, 4]}, "compress_ratios"),
        ("deepseek_v4", {"compress_ratios": [0, 4, 64, 4, 0]}, "compress_ratios"),
        ("deepseek_v4", {"num_key_value_heads": 2}, "num_key_value_heads"),
        ("deepseek_v4", {"scoring_func": "sigmoid"}, "scoring_func"),
        ("deepseek_v4", {"o_groups": 3}, "o_groups"),
        ("kimi_linear", {"mla_use_nope": False}, "text_config.mla_use_nope"),
        ("kimi_linear", {"latent_moe_use_norm": False}, "text_config.latent_moe_use_norm"),
        ("kimi_linear", {"num_nextn_predict_layers": 1}, "text_config.num_nextn_predict_layers"),
        ("kimi_linear", {"num_experts_per_token": 9}, "text_config.num_experts_per_token"),
        ("minimax_m3", {"swiglu_alpha": 1.5}, "text_config.swiglu_alpha"),
        ("minimax_m3", {"partial_rotary_factor": 0.25}, "text_config.partial_rotary_factor"),
        ("minimax_m3", {"moe_layer_freq": [1, 2, 1, 1]}, "text_config.moe_layer_freq"),
        ("minimax_m3", {"attention_output_gate": True}, "text_config.attention_output_gate"),
    ],
)
def test_what_is_refused(family: str, changes: dict[str, Any], key: str) -> None:
    """What contradicts, or would change the arithmetic in a way that the kit does not know, is an error by name."""
    with pytest.raises(ModelConfigError, match=f"config.json: {key} is "):
        read_sparse(family, **changes)


@pytest.mark.parametrize(
    ("family", "section", "changes", "key"),
    [
        ("kimi_linear", "linear_attn_config", {"kda_layers": [1]}, "kda_layers"),
        ("kimi_linear", "linear_attn_config", {"state_scale": 2}, "state_scale"),
        (
            "minimax_m3",
            "sparse_attention_config",
            {"sparse_disable_index_value": [0] * 4},
            "sparse_disable_index_value",
        ),
        ("minimax_m3", "sparse_attention_config", {"sparse_score_type": "mean"}, "sparse_score_type"),
        ("minimax_m3", "sparse_attention_config", {"sparse_stride": 2}, "sparse_stride"),
    ],
)
def test_what_is_refused_in_a_section(family: str, section: str, changes: dict[str, Any], key: str) -> None:
    """A key of a section is named with its path."""
    inner = sparse_config(family)["text_config"][section] | changes

    with pytest.raises(ModelConfigError, match=f"text_config.{section}.{key} is "):
        read_sparse(family, **{section: inner})


def test_keys_of_text_generation_pass() -> None:
    """Files of Kimi repeat what ``generation_config.json`` says; no forward pass depends on it."""
    assert read_sparse("kimi_linear") == read_sparse("kimi_linear", temperature=1.0, top_p=1.0, num_beams=1)


def test_a_file_of_deepseek_v4_that_leaves_out_what_its_class_has() -> None:
    """No ``rms_norm_eps`` and no ``swiglu_limit``: the class's own."""
    spec = read_sparse("deepseek_v4")

    assert (1e-6, 10.0) == (spec.norm_epsilon, spec.activation_limit)


BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
EXPERTS_IN_FOUR = (("layers.*.ffn.experts.*", "mxfp4"), ("*", "fp8_block"))


@pytest.mark.parametrize(
    ("changes", "weights", "layers"),
    [
        ({}, "fp8_block", ()),
        ({"expert_dtype": "fp4"}, "mixed", EXPERTS_IN_FOUR),
        ({"expert_dtype": "fp8"}, "fp8_block", ()),
    ],
)
def test_experts_of_deepseek_v4_have_a_format_of_their_own(
    changes: dict[str, Any], weights: str, layers: tuple[tuple[str, str], ...]
) -> None:
    """``expert_dtype`` beside the section says MXFP4; without it they lie in blocks like all else."""
    found = read_sparse("deepseek_v4", quantization_config=BLOCKS, **changes).stored

    assert found is not None
    assert (weights, layers) == (found.weights, found.layers)


def test_the_section_of_a_wrapped_model_may_stand_inside() -> None:
    """Kimi-K3 has it in ``text_config``; expressions leave out what they match from the name's beginning."""
    section = {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:self_attn.*"],
    }
    found = read_sparse("kimi_linear", quantization_config=section).stored

    assert found is not None
    assert ("compressed-tensors", "MXFP4", "mxfp4") == (found.method, found.scheme, found.weights)
    assert "language_model.model.layers.*.block_sparse_moe.shared_experts.up_proj" in found.exclude
    assert not any("block_sparse_moe.experts" in pattern or "mlp." in pattern for pattern in found.exclude)
