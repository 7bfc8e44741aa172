"""The quantisation files of every format against those that NVIDIA ModelOpt 0.47 exports for the same model."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.quant_config import hf_quant_config, inline_config
from trtllm_kit.spec.profile_formats import KvFormat, PartFormat, WeightFormat

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch, transformers and modelopt")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch, transformers and modelopt")
pytest.importorskip("modelopt", reason="the oracle needs torch, transformers and modelopt")

RECIPES: dict[WeightFormat, str] = {
    "fp8": "FP8_DEFAULT_CFG",
    "fp8_rowwise": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "int8_wo": "INT8_WEIGHT_ONLY_CFG",
    "int4_wo": "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "mxfp8": "MXFP8_DEFAULT_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
    "int4_awq": "INT4_AWQ_CFG",
    "w4a8_awq": "W4A8_AWQ_BETA_CFG",
    "int8_sq": "INT8_SMOOTHQUANT_CFG",
}
WIDE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
"""Widths that groups of 128 divide."""


@pytest.mark.parametrize("weights", RECIPES)
def test_both_files_are_those_of_modelopt(weights: WeightFormat, tmp_path: Path) -> None:
    """Keys, values and order of the exclusions are the same; the producer alone differs."""
    source = write_tiny_model(tmp_path / "source", **WIDE)
    theirs = exported(source, RECIPES[weights], tmp_path / "theirs")
    assert theirs == ours(source, weights)


@pytest.mark.parametrize(
    ("weights", "kv_cache", "recipe"), [("fp8", "fp8", "FP8_KV_CFG"), ("nvfp4", "nvfp4", "NVFP4_KV_CFG")]
)
def test_the_cache_is_named_as_modelopt_names_it(
    weights: WeightFormat, kv_cache: KvFormat, recipe: str, tmp_path: Path
) -> None:
    """FP8 and NVFP4 caches, in both files."""
    source = write_tiny_model(tmp_path / "source", **WIDE)
    theirs = exported(source, RECIPES[weights], tmp_path / "theirs", cache=recipe)
    assert theirs == ours(source, weights, kv_cache)


def test_layers_of_two_formats_are_listed_as_modelopt_lists_them(tmp_path: Path) -> None:
    """Attention in FP8 and feed-forward in NVFP4: MIXED_PRECISION, its layers, and a group for each format."""
    source = write_tiny_model(tmp_path / "source", **WIDE)
    groups: dict[str, PartFormat] = {"attention": "fp8", "feed_forward": "nvfp4", "experts": "bf16"}
    theirs = exported(source, "FP8_DEFAULT_CFG", tmp_path / "theirs", mlp="NVFP4_DEFAULT_CFG")
    assert theirs == ours(source, "mixed", groups=groups)


def test_modelopt_calls_blocks_of_fp8_by_a_word_that_loaders_translate(tmp_path: Path) -> None:
    """fp8_pb_wo, which TensorRT-LLM reads as FP8_BLOCK_SCALES; the kit writes the latter, with the group of 128."""
    source = write_tiny_model(tmp_path / "source", **WIDE)
    theirs, _ = exported(source, "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", tmp_path / "theirs")
    written, inline = ours(source, "fp8_block")
    assert "fp8_pb_wo" == theirs.pop("quant_algo")
    assert {**theirs, "quant_algo": "FP8_BLOCK_SCALES", "group_size": 128} == written
    assert theirs["exclude_modules"] == inline["modules_to_not_convert"]


def ours(
    source: Path,
    weights: WeightFormat,
    kv_cache: KvFormat = "bf16",
    groups: dict[str, PartFormat] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the kit's two sections, without who made them."""
    plan = plan_for(source, weights, kv_cache, groups=groups)
    whole, inline = hf_quant_config(plan.model, plan.quantization), inline_config(plan.model, plan.quantization)
    assert whole is not None
    assert inline is not None
    inline.pop("producer", None)
    return whole["quantization"], inline


def exported(
    source: Path, recipe: str, out: Path, *, cache: str | None = None, mlp: str | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Quantise and export with ModelOpt; return its two sections, without who made them."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()
    chosen = copy.deepcopy(getattr(mtq, recipe))
    if cache is not None:
        chosen = mtq.update_quant_cfg_with_kv_cache_quant(chosen, getattr(mtq, cache)["quant_cfg"])
    if mlp is not None:
        other = copy.deepcopy(getattr(mtq, mlp))["quant_cfg"]
        chosen["quant_cfg"] += [of_mlp(entry) for entry in other if entry["quantizer_name"] in QUANTIZERS]
    tokens = torch.randint(0, 250, (4, 64))
    model = mtq.quantize(model, chosen, lambda quantised: quantised(tokens))
    export_hf_checkpoint(model, dtype=torch.bfloat16, export_dir=out)
    whole = json.loads((out / "hf_quant_config.json").read_text("utf-8"))["quantization"]
    inline = json.loads((out / "config.json").read_text("utf-8"))["quantization_config"]
    inline.pop("producer", None)
    return whole, inline


QUANTIZERS = ("*weight_quantizer", "*input_quantizer")


def of_mlp(entry: dict[str, Any]) -> dict[str, Any]:
    """Narrow a rule to feed-forward blocks."""
    return {**entry, "quantizer_name": f"*mlp.{entry['quantizer_name']}"}
