"""hf_quant_config.json, quant_cfg.json and quantization_config of every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.formats import DECODERS, ENCODERS
from trtllm_kit.checkpoint.quant_config import hf_quant_config, inline_config, layer_quant_config
from trtllm_kit.plan.formats import FORMATS
from trtllm_kit.plan.quantization import KV_MADE_HERE, MADE_HERE
from trtllm_kit.spec.profile_formats import PartFormat, WeightFormat

EXCLUDED = ["lm_head", "model.embed_tokens"]
AWQ = {"group_size": 128, "has_zero_point": False, "pre_quant_scale": True}
WRITTEN: dict[WeightFormat, dict[str, Any]] = {
    "fp8": {"quant_algo": "FP8"},
    "fp8_rowwise": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
    "fp8_block": {"quant_algo": "FP8_BLOCK_SCALES", "group_size": 128},
    "int8_wo": {"quant_algo": "W8A16"},
    "int4_wo": {"quant_algo": "W4A16_AWQ", **AWQ},
    "mxfp8": {"quant_algo": "MXFP8", "group_size": 32},
    "nvfp4": {"quant_algo": "NVFP4", "group_size": 16},
    "int4_awq": {"quant_algo": "W4A16_AWQ", **AWQ},
    "w4a8_awq": {"quant_algo": "W4A8_AWQ", **AWQ},
    "int8_sq": {"quant_algo": "W8A8_SQ_PER_CHANNEL"},
}
GROUPS: dict[str, PartFormat] = {"attention": "fp8", "feed_forward": "nvfp4", "experts": "bf16"}


def described(source: Path, weights: WeightFormat, kv_cache: str = "bf16", **more: Any) -> tuple[Any, Any, Any]:
    """Return the three documents of a tiny model."""
    plan = plan_for(source, weights, kv_cache, **more)  # type: ignore[arg-type]
    return tuple(make(plan.model, plan.quantization) for make in (hf_quant_config, layer_quant_config, inline_config))  # type: ignore[return-value]


def test_every_format_but_16_bit_is_written() -> None:
    """The table above leaves none out but MXFP4, which only comes with a model and keeps its own words."""
    assert {*get_args(PartFormat)} - {"bf16", "mxfp4"} == set(WRITTEN)


@pytest.mark.parametrize("weights", WRITTEN)
def test_a_format_has_modelopt_s_fields(weights: WeightFormat, tmp_path: Path) -> None:
    """Algo, cache, group size, AWQ's words and exclusions, in that order; one format needs no list of layers."""
    whole, layers, _ = described(write_tiny_model(tmp_path), weights)
    wanted = {"kv_cache_quant_algo": None, **WRITTEN[weights], "exclude_modules": EXCLUDED}
    assert wanted == whole["quantization"]
    assert layers is None


def test_a_group_size_of_64_is_said(tmp_path: Path) -> None:
    """Where the profile asks for smaller groups."""
    whole, _, _ = described(write_tiny_model(tmp_path), "int4_wo", group_size=64)
    assert 64 == whole["quantization"]["group_size"]


@pytest.mark.parametrize(("kv_cache", "algo"), [("fp8", "FP8"), ("nvfp4", "NVFP4")])
def test_the_cache_is_named_in_both_files(kv_cache: str, algo: str, tmp_path: Path) -> None:
    """FP8 by its numbers in config.json, others by their word."""
    whole, _, inline = described(write_tiny_model(tmp_path), "nvfp4", kv_cache)
    assert algo == whole["quantization"]["kv_cache_quant_algo"]
    scheme = {"dynamic": False, "num_bits": 8, "type": "float"} if algo == "FP8" else algo
    assert scheme == inline["kv_cache_scheme"]


def test_nvfp4_describes_its_groups_in_config_json(tmp_path: Path) -> None:
    """Weights and inputs in groups of 16."""
    numbers = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    _, _, inline = described(write_tiny_model(tmp_path), "nvfp4")
    assert {"group_0": {"input_activations": numbers, "weights": numbers, "targets": ["Linear"]}} == inline[
        "config_groups"
    ]


def test_fp8_blocks_are_described_as_deepseek_does(tmp_path: Path) -> None:
    """config.json has quant_method fp8 and the block, the file beside it ModelOpt's words."""
    whole, _, inline = described(write_tiny_model(tmp_path), "fp8_block", "fp8")
    assert {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "modules_to_not_convert": EXCLUDED,
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    } == inline
    assert "FP8" == whole["quantization"]["kv_cache_quant_algo"]


def test_latent_attention_in_fp8_blocks_has_the_inline_form_alone(tmp_path: Path) -> None:
    """Each release keeps its own list of what of DeepSeek it reads in 16 bit, and a second file would replace it."""
    whole, _, inline = described(write_tiny_model(tmp_path, "deepseek_v3"), "fp8_block")
    assert whole is None
    assert "fp8" == inline["quant_method"]
    assert not [name for name in inline["modules_to_not_convert"] if "kv_b_proj" in name]


def test_mixed_weights_list_every_layer(tmp_path: Path) -> None:
    """Each quantised module by its format; what stays in 16 bit is in no list."""
    whole, layers, inline = described(write_tiny_model(tmp_path), "mixed", "fp8", groups=GROUPS)
    section = whole["quantization"]
    assert ("MIXED_PRECISION", "FP8") == (section["quant_algo"], section["kv_cache_quant_algo"])
    assert "exclude_modules" not in section
    assert {"quant_algo": "FP8"} == section["quantized_layers"]["model.layers.0.self_attn.q_proj"]
    assert {"quant_algo": "NVFP4", "group_size": 16} == section["quantized_layers"]["model.layers.0.mlp.up_proj"]
    assert section == layers
    assert section["quantized_layers"] == inline["quantized_layers"]
    assert ["model.layers.0.self_attn.k_proj"] == inline["config_groups"]["group_0"]["targets"][:1]
    assert [] == inline["ignore"]


def test_one_format_beside_16_bit_is_not_mixed(tmp_path: Path) -> None:
    """As ModelOpt does, it is that format with the other modules excluded."""
    groups: dict[str, PartFormat] = {"attention": "fp8", "feed_forward": "bf16", "experts": "bf16"}
    whole, layers, _ = described(write_tiny_model(tmp_path), "mixed", groups=groups)
    assert "FP8" == whole["quantization"]["quant_algo"]
    assert {"model.layers.0.mlp.up_proj", *EXCLUDED} <= set(whole["quantization"]["exclude_modules"])
    assert layers is None


@pytest.mark.parametrize("kv_cache", ["bf16", "fp8"])
def test_plain_weights_have_none_of_the_three(kv_cache: str, tmp_path: Path) -> None:
    """TensorRT-LLM refuses a file without quant_algo."""
    assert (None, None, None) == described(write_tiny_model(tmp_path), "bf16", kv_cache)


@given(
    attention=st.sampled_from(["bf16", *WRITTEN]),
    feed_forward=st.sampled_from(["bf16", *WRITTEN]),
)
def test_listed_and_excluded_modules_cover_the_linear_layers(
    attention: PartFormat, feed_forward: PartFormat, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the parts take, each linear layer is listed with a format or left in 16 bit, and none is both."""
    source = tmp_path_factory.getbasetemp() / "covered"
    if not source.exists():
        write_tiny_model(source)
    groups: dict[str, PartFormat] = {"attention": attention, "feed_forward": feed_forward, "experts": "bf16"}
    whole, layers, _ = described(source, "mixed", groups=groups)
    if attention == feed_forward == "bf16":
        assert whole is layers is None
        return
    section = whole["quantization"]
    listed = set(section.get("quantized_layers", ())) or {
        name for name in linears() if name not in section["exclude_modules"]
    }
    wanted = {name for name in linears() if (attention if "self_attn" in name else feed_forward) != "bf16"}
    assert wanted == listed


def linears() -> list[str]:
    """Return the linear modules of the tiny model's two layers."""
    parts = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    parts += ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    return [f"model.layers.{number}.{part}" for number in range(2) for part in parts]


def test_what_is_said_to_be_made_has_an_encoder_and_a_decoder() -> None:
    """Every format of the list that is no copy, and every encoder of a profile's format is in the list."""
    made = set(MADE_HERE) - {"bf16"}
    assert made == set(ENCODERS) & set(get_args(PartFormat))
    assert made <= set(DECODERS)
    assert not any(FORMATS[name].modelopt for name in MADE_HERE if name != "mixed")
    assert set(KV_MADE_HERE) <= {"bf16", "fp8", "int8", "nvfp4"}
