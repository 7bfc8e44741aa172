"""Rank files back to a Hugging Face folder, and from there to rank files again: bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.foreign_ranks import copied, plan_again, same_files
from tests.checkpoint.plans import plan_as_stored, plan_for
from tests.checkpoint.ranks import RankFolder, e4m3, rank_plan, read_file
from tests.checkpoint.recorders import Interrupting
from tests.checkpoint.test_context_ranks import in_parts
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.from_ranks import migrate
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.progress import Silent
from trtllm_kit.spec.load import load_model

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
SPLITS = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1))
ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | {
    "original_max_position_embeddings": 256
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tied": ("llama", {"tie_word_embeddings": True}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "rope": ("llama", {"rope_scaling": ROPE, "rope_theta": 500000.0}),
    "float16": ("llama", {"dtype": "float16"}),
    "padded": ("qwen2", {"vocab_size": 269}),
    "one-kv-head": ("llama", {"num_key_value_heads": 1}),
    "windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}),
    "window": ("mistral", {"sliding_window": 64}),
    "several-ends": ("qwen3", {"eos_token_id": [2, 4]}),
    "not-normalised": ("qwen3_moe", {"norm_topk_prob": False}),
}


def ranks_of(source: Path, out: Path, split: tuple[int, int, int], **formats: Any) -> Path:
    """Convert a model into rank files."""
    convert(source, rank_plan(source, *split, **formats), out, Silent())
    return out


def splits_of(family: str) -> tuple[tuple[int, int, int], ...]:
    """Return splits; those of experts share them out too."""
    return (*SPLITS, (4, 1, 2), (4, 1, 4)) if family in ("mixtral", "qwen3_moe") else SPLITS


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_comes_back_from_any_split_bit_by_bit(tmp_path: Path, family: str) -> None:
    """Every tensor has its name, dtype and bits again, and config.json describes the same model."""
    source = write_tiny_model(tmp_path / "source", family, seed=3)
    for number, split in enumerate(splits_of(family)):
        ranks = ranks_of(source, tmp_path / f"ranks{number}", split)
        made = migrate(ranks, tmp_path / f"out{number}", Silent())
        assert [] == same_files(source, tmp_path / f"out{number}"), split
        assert load_model(source) == load_model(tmp_path / f"out{number}"), split
        assert ([], {}) == (made.report["findings"], made.report["left_out"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_config_json_says_comes_back(tmp_path: Path, variant: str) -> None:
    """Ties, biases, rope, padding, copied heads, windows and ends are as they were, and so is every tensor."""
    family, overrides = VARIANTS[variant]
    source = write_tiny_model(tmp_path / "source", family, seed=3, **overrides)
    migrate(ranks_of(source, tmp_path / "ranks", (4, 1, 1)), tmp_path / "out", Silent())
    assert [] == same_files(source, tmp_path / "out")
    assert load_model(source) == load_model(tmp_path / "out")


@pytest.mark.parametrize("weights", ["bf16", "fp8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rank_files_come_back_bit_by_bit(tmp_path: Path, family: str, weights: str) -> None:
    """To Hugging Face and laid out again: every byte of every rank and all that config.json says."""
    source = write_tiny_model(tmp_path / "source", family, seed=3)
    splits = {"llama": SPLITS, "mixtral": ((4, 1, 2),)}.get(family, ((4, 1, 1),))
    for number, split in enumerate(splits):
        cache = "fp8" if weights == "fp8" else "bf16"
        ranks = ranks_of(source, tmp_path / f"ranks{number}", split, weights=weights, kv_cache=cache)
        out, again = tmp_path / f"out{number}", tmp_path / f"again{number}"
        migrate(ranks, out, Silent())
        convert(out, plan_again(out, *split), again, Silent())
        assert [] == same_files(ranks, again), split
        assert json.loads((ranks / "config.json").read_text()) == json.loads((again / "config.json").read_text())


@pytest.mark.parametrize(("weights", "split"), [("nvfp4", (2, 2, 1)), ("nvfp4", (4, 1, 1)), ("fp8_rowwise", (1, 2, 1))])
def test_other_packed_formats_come_back_too(tmp_path: Path, weights: str, split: tuple[int, int, int]) -> None:
    """Codes of four bits with their scales of blocks, and FP8 with a scale a row."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    ranks = ranks_of(source, tmp_path / "ranks", split, weights=weights, kv_cache="fp8")
    migrate(ranks, tmp_path / "out", Silent())
    convert(tmp_path / "out", plan_again(tmp_path / "out", *split), tmp_path / "again", Silent())
    assert [] == same_files(ranks, tmp_path / "again")


def test_fp8_can_be_cut_into_another_split(tmp_path: Path) -> None:
    """Rank files for four GPUs become those for two, as if they had been converted so: nothing is rounded again."""
    source = write_tiny_model(tmp_path / "source", "qwen3_moe", seed=3)
    four = ranks_of(source, tmp_path / "four", (4, 1, 2), weights="fp8", kv_cache="fp8")
    two = ranks_of(source, tmp_path / "two", (2, 1, 1), weights="fp8", kv_cache="fp8")
    migrate(four, tmp_path / "out", Silent())
    convert(tmp_path / "out", plan_again(tmp_path / "out", 2), tmp_path / "again", Silent())
    assert [] == same_files(two, tmp_path / "again")


@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_fp8_values_are_those_of_the_ranks_and_the_report_has_their_scale(tmp_path: Path, family: str) -> None:
    """Code times scale is what an independent reader of the ranks has; q, k and v have one scale, named in a row."""
    source = write_tiny_model(tmp_path / "source", family, seed=3)
    ranks = ranks_of(source, tmp_path / "ranks", (2, 1, 1), weights="fp8", kv_cache="fp8")
    made = migrate(ranks, tmp_path / "out", Silent())
    held, wanted = read_file(tmp_path / "out" / "model.safetensors"), RankFolder(ranks).reassembled()
    for name, values in wanted.items():
        dtype, raw = held[name]
        if dtype == "F8_E4M3":
            scale = held[f"{name}_scale"][1]
            assert np.array_equal(values, e4m3(raw) * scale), name
    row = made.report["shared_scales"][0]
    modules = [f"model.layers.0.self_attn.{short}_proj" for short in "qkv"]
    assert (modules, "weight_scale") == (row["modules"], row["part"])
    assert {row["value"]} == {float(held[f"{module}.weight_scale"][1]) for module in modules}
    assert 4 == len(made.report["shared_scales"])
    assert "CK5" == made.report["findings"][0]["rule"]


def test_experts_have_one_row_a_layer_in_the_report(tmp_path: Path) -> None:
    """Gate and up of each expert share a scale: the row counts the experts and has the smallest and the largest."""
    source = write_tiny_model(tmp_path / "source", "mixtral", seed=3)
    ranks = ranks_of(source, tmp_path / "ranks", (2, 1, 2), weights="fp8", kv_cache="fp8")
    row = migrate(ranks, tmp_path / "out", Silent()).report["shared_scales"][1]
    held = read_file(tmp_path / "out" / "model.safetensors")
    scales = [float(held[f"model.layers.0.block_sparse_moe.experts.{n}.w3.weight_scale"][1]) for n in range(4)]
    assert (4, min(scales), max(scales)) == (row["experts"], row["smallest"], row["largest"])


def test_context_ranks_change_nothing(tmp_path: Path) -> None:
    """They read the files of their tensor rank, so the same folder comes back."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    convert(source, in_parts(rank_plan(source, 2), 3), tmp_path / "ranks", Silent())
    made = migrate(tmp_path / "ranks", tmp_path / "out", Silent())
    assert [] == same_files(source, tmp_path / "out")
    assert 3 == made.report["from"]["context"]


def test_row_scales_that_differ_by_rank_come_back_in_16_bit(tmp_path: Path) -> None:
    """Row-wise FP8 of o and down: each rank has scales of its own, so values are rounded to BF16, which is told."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    ranks = ranks_of(source, tmp_path / "ranks", (2, 1, 1), weights="fp8_rowwise")
    made = migrate(ranks, tmp_path / "out", Silent())
    held, wanted = read_file(tmp_path / "out" / "model.safetensors"), RankFolder(ranks).reassembled()
    name = "model.layers.1.mlp.down_proj.weight"
    dtype, raw = held[name]
    values = (raw.astype(np.uint32) << 16).view(np.float32)
    assert "BF16" == dtype
    assert np.all(np.abs(values - wanted[name]) <= np.abs(wanted[name]) / 256)
    assert "F8_E4M3" == held["model.layers.1.mlp.up_proj.weight"][0]
    (said,) = (one for one in made.report["findings"] if one["rule"] == "CK13")
    assert said["compared"].startswith("4 weights, first model.layers.0.self_attn.o_proj.weight")
    stored = load_model(tmp_path / "out").stored
    assert stored is not None
    assert ("model.layers.*.mlp.down_proj", "model.layers.*.self_attn.o_proj") == tuple(sorted(stored.exclude))


def test_weights_that_the_build_would_have_packed_stay_in_16_bit(tmp_path: Path) -> None:
    """INT8 weight-only lies in 16 bit in the ranks: the model comes back bit by bit, and a finding has the algo."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    made = migrate(ranks_of(source, tmp_path / "ranks", (2, 1, 1), weights="int8_wo"), tmp_path / "out", Silent())
    assert [] == same_files(source, tmp_path / "out")
    (said,) = made.report["findings"]
    assert ("CK10", True) == (said["rule"], "W8A16" in said["message"])


def test_a_cache_scale_without_a_place_is_told_with_its_value(tmp_path: Path) -> None:
    """Plain weights with an FP8 cache: the layout names no scales beside them."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    made = migrate(ranks_of(source, tmp_path / "ranks", (2, 1, 1), kv_cache="fp8"), tmp_path / "out", Silent())
    assert [] == same_files(source, tmp_path / "out")
    assert ["CK6"] == [one["rule"] for one in made.report["findings"]]
    assert "4 scales from 1 to 1;" in made.report["findings"][0]["compared"]


def test_a_second_run_does_nothing_and_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    """The bytes are those of a run that was not interrupted, in as many weight files."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    ranks = ranks_of(source, tmp_path / "ranks", (2, 2, 1))
    migrate(ranks, tmp_path / "whole", Silent(), shard_bytes=50_000)
    with pytest.raises(KeyboardInterrupt):
        migrate(ranks, tmp_path / "out", Interrupting("writing weights", 100_000), shard_bytes=50_000)
    assert not (tmp_path / "out").exists()
    made = migrate(ranks, tmp_path / "out", Silent(), shard_bytes=50_000)
    assert (True, False) == (made.resumed, made.up_to_date)
    files = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert "model.safetensors.index.json" in files
    assert migrate(ranks, tmp_path / "out", Silent(), shard_bytes=50_000).up_to_date


def test_without_a_record_the_ends_come_from_the_tokenizers_folder(tmp_path: Path) -> None:
    """Another maker's files name no tokens: those of --tokenizer are taken, and the model is the same."""
    source = write_tiny_model(tmp_path / "source", "qwen2", seed=3)
    ranks = copied(ranks_of(source, tmp_path / "ranks", (2, 1, 1)), tmp_path / "theirs")
    for path in ranks.glob("*token*"):
        path.unlink()
    (ranks / "generation_config.json").unlink()
    bare = migrate(ranks, tmp_path / "bare", Silent())
    assert (["CK9"], ()) == ([one["rule"] for one in bare.report["findings"]], load_model(tmp_path / "bare").eos_tokens)
    made = migrate(ranks, tmp_path / "out", Silent(), source)
    assert [] == made.report["findings"]
    assert load_model(source) == load_model(tmp_path / "out")
    assert (source / "tokenizer.json").read_bytes() == (tmp_path / "out" / "tokenizer.json").read_bytes()


def test_unified_nvfp4_is_cut_into_the_ranks_of_a_conversion(tmp_path: Path) -> None:
    """q, k and v share their scale of the whole there too, so the ranks are those made of the 16-bit weights."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    convert(source, plan_for(source, "nvfp4", "fp8"), tmp_path / "unified", Silent())
    convert(tmp_path / "unified", plan_again(tmp_path / "unified", 4), tmp_path / "again", Silent())
    ranks = ranks_of(source, tmp_path / "ranks", (4, 1, 1), weights="nvfp4", kv_cache="fp8")
    assert [] == same_files(ranks, tmp_path / "again")


def test_layers_of_several_formats_come_back_each_in_its_own(tmp_path: Path) -> None:
    """Attention in FP8 and feed-forward in NVFP4: config.json lists every layer with its format and what shares one."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    parts = {"attention": "fp8", "feed_forward": "nvfp4"}
    ranks = ranks_of(source, tmp_path / "ranks", (2, 1, 1), weights="mixed", groups=parts)
    made = migrate(ranks, tmp_path / "out", Silent())
    assert "mixed" == made.report["weights"]
    stored = load_model(tmp_path / "out").stored
    assert stored is not None
    by_layer = {pattern.removeprefix("model.layers.*."): chosen for pattern, chosen in stored.layers}
    assert ("fp8", "nvfp4", 7) == (by_layer["self_attn.o_proj"], by_layer["mlp.up_proj"], len(by_layer))
    held, wanted = open_checkpoint(tmp_path / "out").weights, RankFolder(ranks).reassembled()
    assert all(np.array_equal(values, held.tensor(name)) for name, values in wanted.items())


@pytest.mark.parametrize(
    ("family", "weights"), [("llama", "fp8"), ("qwen3_moe", "fp8"), ("qwen2", "nvfp4"), ("llama", "fp8_rowwise")]
)
def test_the_folder_is_passed_through_like_a_published_one(tmp_path: Path, family: str, weights: str) -> None:
    """Its tensors hold against its own configuration, and convert for the PyTorch backend changes no bit."""
    source = write_tiny_model(tmp_path / "source", family, seed=3)
    migrate(ranks_of(source, tmp_path / "ranks", (2, 1, 1), weights=weights), tmp_path / "out", Silent())
    convert(tmp_path / "out", plan_as_stored(tmp_path / "out"), tmp_path / "passed", Silent())
    assert [] == same_files(tmp_path / "out", tmp_path / "passed")
