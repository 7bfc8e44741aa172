"""The checkpoint that trtllm-build reads, put together again by a reader of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.ranks import Plain, RankFolder, bf16_values, rank_plan
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.errors import KitError, TensorError
from trtllm_kit.progress import Silent
from trtllm_kit.reference.model import ReferenceModel
from trtllm_kit.spec.load import load_model

DENSE: dict[str, Any] = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 269}
WIDE: dict[str, Any] = {**DENSE, "num_hidden_layers": 3}
TOKENS = list(range(5, 29))
SPLITS = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1), (4, 3, 1)]
EXPERT_SPLITS = [(1, 1, 1), (2, 1, 2), (4, 1, 2), (4, 2, 4), (4, 1, 1)]
CASES = [
    *(("llama", split) for split in SPLITS),
    *(("mistral", split) for split in SPLITS[1:3]),
    *(("qwen2", split) for split in SPLITS),
    *(("qwen3", split) for split in SPLITS[1:4]),
    *(("mixtral", split) for split in EXPERT_SPLITS),
    *(("qwen3_moe", split) for split in EXPERT_SPLITS),
]


def logits(folder: Path, tensors: dict[str, Any]) -> Any:
    """Run the reference forward pass on plain tensors."""
    model = ReferenceModel(load_model(folder), Plain(tensors), "bf16", len(TOKENS))
    return model.forward(TOKENS, model.new_cache())


@pytest.mark.parametrize(("family", "split"), CASES)
def test_the_ranks_together_are_the_source(tmp_path: Path, family: str, split: tuple[int, int, int]) -> None:
    """Whatever the split, 16-bit rank files hold every weight of the source bit by bit, and give its logits."""
    source = write_tiny_model(tmp_path / "source", family, **WIDE)
    convert(source, rank_plan(source, *split), tmp_path / "out", Silent())
    wanted, found = bf16_values(source / "model.safetensors"), RankFolder(tmp_path / "out").reassembled()
    assert wanted.keys() == found.keys()
    assert [] == [name for name in wanted if not np.array_equal(wanted[name], found[name])]
    assert np.array_equal(logits(source, wanted), logits(source, found))


def test_a_tied_head_is_a_copy_of_the_embedding(tmp_path: Path) -> None:
    """The last stage of a model with tied embeddings has a head of its own."""
    source = write_tiny_model(tmp_path / "source", "qwen2", **DENSE, tie_word_embeddings=True)
    convert(source, rank_plan(source, 2, 2), tmp_path / "out", Silent())
    found = RankFolder(tmp_path / "out").reassembled()
    assert np.array_equal(found["model.embed_tokens.weight"], found["lm_head.weight"])


def test_biases_of_what_is_summed_stand_on_every_rank(tmp_path: Path) -> None:
    """A model with biases everywhere comes together again; those behind a sum over ranks are whole on each."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE, attention_bias=True, mlp_bias=True)
    convert(source, rank_plan(source, 4), tmp_path / "out", Silent())
    wanted, found = bf16_values(source / "model.safetensors"), RankFolder(tmp_path / "out").reassembled()
    assert wanted.keys() == found.keys()
    assert [] == [name for name in wanted if not np.array_equal(wanted[name], found[name])]


@pytest.mark.parametrize("family", ["llama", "qwen2", "mixtral", "qwen3_moe"])
def test_fp8_ranks_are_within_the_step_of_e4m3(tmp_path: Path, family: str) -> None:
    """Each linear weight is off by no more than 1/16 of itself, or half the smallest step of its scale."""
    source = write_tiny_model(tmp_path / "source", family, **DENSE)
    split = (4, 1, 2) if family in ("mixtral", "qwen3_moe") else (4, 2, 1)
    convert(source, rank_plan(source, *split, weights="fp8", kv_cache="fp8"), tmp_path / "out", Silent())
    folder = RankFolder(tmp_path / "out")
    wanted, found = bf16_values(source / "model.safetensors"), folder.reassembled()
    quantised = {name for name in wanted if not np.array_equal(wanted[name], found[name])}
    assert {name for name in wanted if "_proj.weight" in name or ".experts." in name} == quantised
    for name in quantised:
        step = np.abs(wanted[name]).max() * 2 / 448 * 2.0**-10
        assert (np.abs(wanted[name] - found[name]) <= np.maximum(np.abs(wanted[name]) / 16, step)).all(), name
    assert {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}.items() <= folder.config["quantization"].items()


def test_all_ranks_have_the_scale_of_the_whole_matrix(tmp_path: Path) -> None:
    """The scale is the largest magnitude of q, k and v together over 448, whatever part of it a rank holds."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE)
    convert(source, rank_plan(source, 4, weights="fp8"), tmp_path / "out", Silent())
    wanted = bf16_values(source / "model.safetensors")
    parts = [wanted[f"model.layers.0.self_attn.{short}_proj.weight"] for short in "qkv"]
    scale = max(np.abs(part).max() for part in parts) / np.float32(448)
    ranks = RankFolder(tmp_path / "out").ranks
    name = "transformer.layers.0.attention.qkv.weights_scaling_factor"
    assert [np.float32(scale)] * 4 == [tensors[name][1].item() for tensors in ranks]


def test_each_expert_has_a_scale_of_its_own(tmp_path: Path) -> None:
    """The scales of stacked experts are those of gate and up together, expert by expert."""
    source = write_tiny_model(tmp_path / "source", "mixtral", **DENSE)
    convert(source, rank_plan(source, 4, 1, 2, weights="fp8"), tmp_path / "out", Silent())
    wanted, ranks = bf16_values(source / "model.safetensors"), RankFolder(tmp_path / "out").ranks
    for rank, experts in enumerate([(0, 1), (2, 3), (0, 1), (2, 3)]):
        pairs = [[wanted[f"model.layers.0.block_sparse_moe.experts.{e}.w{w}.weight"] for w in (1, 3)] for e in experts]
        scales = [max(np.abs(one).max() for one in pair) / np.float32(448) for pair in pairs]
        assert np.array(scales, np.float32).tolist() == (
            ranks[rank]["transformer.layers.0.mlp.fc.weights_scaling_factor"][1].ravel().tolist()
        )


@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8_wo"])
def test_the_cache_scale_is_one_and_always_there(tmp_path: Path, weights: str) -> None:
    """With an FP8 cache every layer has its scale, which is 1 as long as keys and values stay below 448."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE)
    plan = rank_plan(source, 2, release="0.16.0", weights=weights, kv_cache="fp8")
    convert(source, plan, tmp_path / "out", Silent())
    names = [f"transformer.layers.{layer}.attention.kv_cache_scaling_factor" for layer in range(2)]
    for tensors in RankFolder(tmp_path / "out").ranks:
        assert [1.0, 1.0] == [tensors[name][1].item() for name in names]
        assert not any("k_cache" in name.replace("kv_cache", "") for name in tensors)


def test_scales_of_keys_and_values_come_with_0_18(tmp_path: Path) -> None:
    """Later releases find a scale for keys and one for values beside the one for both."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE)
    convert(source, rank_plan(source, release="0.18.2", kv_cache="fp8"), tmp_path / "out", Silent())
    found = {name.rpartition(".")[2] for name in RankFolder(tmp_path / "out").ranks[0]}
    assert {f"{which}_cache_scaling_factor" for which in ("kv", "k", "v")} <= found


@pytest.mark.parametrize("weights", ["int8_wo", "int4_wo"])
def test_weight_only_files_hold_16_bit_and_the_algo(tmp_path: Path, weights: str) -> None:
    """trtllm-build packs INT8 and INT4 itself: the files hold the source's weights, config.json what to make."""
    source = write_tiny_model(tmp_path / "source", "qwen2", **DENSE)
    convert(source, rank_plan(source, 2, weights=weights), tmp_path / "out", Silent())
    folder = RankFolder(tmp_path / "out")
    wanted, found = bf16_values(source / "model.safetensors"), folder.reassembled()
    assert [] == [name for name in wanted if not np.array_equal(wanted[name], found[name])]
    assert {"int8_wo": "W8A16", "int4_wo": "W4A16"}[weights] == folder.config["quantization"]["quant_algo"]


@pytest.mark.parametrize(("family", "weights", "bound"), [("llama", "fp8_rowwise", 1 / 16), ("qwen2", "nvfp4", 1.0)])
def test_scales_of_rows_and_blocks_follow_their_rank(tmp_path: Path, family: str, weights: str, bound: float) -> None:
    """Row-wise FP8 and NVFP4 come back within a step of their scale: 1/16 of a value, and an e2m1 step of a block."""
    source = write_tiny_model(tmp_path / "source", family, **DENSE)
    convert(source, rank_plan(source, 2, 2, weights=weights), tmp_path / "out", Silent())
    folder = RankFolder(tmp_path / "out")
    wanted, found = bf16_values(source / "model.safetensors"), folder.reassembled()
    for name in (name for name in wanted if name.endswith("_proj.weight")):
        values = np.abs(wanted[name]).reshape(len(wanted[name]), -1, 16)
        near = values if weights == "fp8_rowwise" else values.max(axis=-1, keepdims=True) / 6
        allowed = np.maximum(near * bound * 1.07, values.max() / 448 * 2.0**-9)
        assert (np.abs(wanted[name] - found[name]).reshape(values.shape) <= allowed).all(), name
    assert {"fp8_rowwise": "FP8_PER_CHANNEL_PER_TOKEN", "nvfp4": "NVFP4"}[weights] == (
        folder.config["quantization"]["quant_algo"]
    )


@pytest.mark.parametrize(
    ("family", "formats"),
    [("llama", "fp8"), ("mixtral", "fp8"), ("qwen2", "bf16"), ("llama", "fp8_rowwise"), ("qwen2", "nvfp4")],
)
def test_the_kit_reads_back_what_it_wrote(tmp_path: Path, family: str, formats: str) -> None:
    """The product's own reader, which the quality report runs on, gives the numbers of the independent one."""
    source = write_tiny_model(tmp_path / "source", family, **DENSE)
    split = (4, 2, 2) if family == "mixtral" else (4, 2, 1)
    convert(source, rank_plan(source, *split, weights=formats, kv_cache="fp8"), tmp_path / "out", Silent())
    opened, folder = open_checkpoint(tmp_path / "out"), RankFolder(tmp_path / "out")
    found = folder.reassembled()
    assert [] == [name for name in found if not np.array_equal(found[name], opened.weights.tensor(name))]
    assert "fp8" == opened.kv_format
    attention = "model.layers.1.self_attn."
    assert 1.0 == opened.weights.scale(f"{attention}k_proj.k_scale")
    stored = folder.ranks[4].get("transformer.layers.0.attention.qkv.activation_scaling_factor")
    assert (None if stored is None else stored[1].item()) == opened.weights.scale(f"{attention}k_proj.input_scale")
    assert {"fp8": "fp8", "bf16": "plain"}.get(formats, formats) == (
        opened.weights.number_format(f"{attention}v_proj.weight")
    )


def test_mixed_formats_lie_side_by_side_and_are_named_in_a_file_of_their_own(tmp_path: Path) -> None:
    """FP8 attention beside weight-only feed-forward: each tensor as its format says, and quant_cfg.json names both."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE)
    groups = {"attention": "fp8", "feed_forward": "int8_wo"}
    convert(source, rank_plan(source, 2, weights="mixed", groups=groups), tmp_path / "out", Silent())
    folder = RankFolder(tmp_path / "out")
    dtypes = {name: dtype for name, (dtype, _) in folder.ranks[1].items() if name.startswith("transformer.layers.1.")}
    assert "F8_E4M3" == dtypes["transformer.layers.1.attention.dense.weight"]
    assert "BF16" == dtypes["transformer.layers.1.mlp.proj.weight"]
    named = json.loads((tmp_path / "out" / "quant_cfg.json").read_text("utf-8"))["quantized_layers"]
    assert {"quant_algo": "FP8"} == named["transformer.layers.1.attention.dense"]
    assert {"quant_algo": "W8A16"} == named["transformer.layers.1.mlp.proj"]


def test_files_of_another_split_are_told_all_at_once(tmp_path: Path) -> None:
    """Rank files that do not fit the record beside them are refused with every tensor that is wrong."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE)
    convert(source, rank_plan(source, 2), tmp_path / "out", Silent())
    record = tmp_path / "out" / "trtkit-conversion.json"
    record.write_text(record.read_text("utf-8").replace('"tensor": 2', '"tensor": 1'), "utf-8")
    with pytest.raises(TensorError, match=r"\d\d problems"):
        open_checkpoint(tmp_path / "out")


def test_a_missing_rank_file_is_named(tmp_path: Path) -> None:
    """Without the file of one rank the checkpoint cannot be read."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE)
    convert(source, rank_plan(source, 2), tmp_path / "out", Silent())
    (tmp_path / "out" / "rank1.safetensors").unlink()
    with pytest.raises(KitError, match=r"rank1\.safetensors"):
        open_checkpoint(tmp_path / "out")


@pytest.mark.parametrize("weights", ["bf16", "int8_wo"])
@pytest.mark.parametrize(("release", "parts"), [("0.17.0", 1), ("1.2.1", 3)])
def test_an_int8_cache_has_the_largest_key_or_value_over_127(
    tmp_path: Path, weights: str, release: str, parts: int
) -> None:
    """The scale of both is the larger of the two; beside it stand those of keys and of values from 0.18 on."""
    source = write_tiny_model(tmp_path / "source", "llama", **DENSE)
    convert(source, rank_plan(source, 2, release=release, weights=weights, kv_cache="int8"), tmp_path / "out", Silent())
    folder = RankFolder(tmp_path / "out")
    assert "INT8" == folder.config["quantization"]["kv_cache_quant_algo"]
    for rank in folder.ranks:
        scales = {name: raw for name, (_, raw) in rank.items() if name.endswith("_cache_scaling_factor")}
        assert parts * 2 == len(scales)
        both = scales["transformer.layers.0.attention.kv_cache_scaling_factor"]
        assert (1,) == both.shape
        assert 0 < both[0] < 1
        if parts > 1:
            each = [scales[f"transformer.layers.0.attention.{part}_cache_scaling_factor"][0] for part in "kv"]
            assert max(each) == both[0]
