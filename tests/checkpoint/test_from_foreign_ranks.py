"""Rank files of other makers: another way to share the embedding, other words, heads, padding, packed codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.foreign_ranks import (
    EMBEDDING,
    HEAD,
    Tensors,
    bits_of,
    changed,
    copied,
    described,
    of_array,
    same_files,
    whole_embedding,
    with_tensors,
)
from tests.checkpoint.rank_export import write_smoothed
from tests.checkpoint.ranks import RankFolder, rank_plan, read_file
from tests.support.quantised import Stored
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.from_ranks import Migrated, migrate
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.progress import Silent
from trtllm_kit.spec.load import load_model

VOCAB = 272
GROUP = 64


def theirs(root: Path, family: str = "llama", tensor: int = 2, pipeline: int = 1, **more: Any) -> tuple[Path, Path]:
    """Return a model, and its rank files without trtkit's record."""
    formats = {name: more.pop(name) for name in ("weights", "kv_cache") if name in more}
    source = write_tiny_model(root / "source", family, seed=3, **more)
    convert(source, rank_plan(source, tensor, pipeline, **formats), root / "ranks", Silent())
    return source, copied(root / "ranks", root / "theirs")


def brought(root: Path, tokenizer: Path | None = None) -> Migrated:
    """Migrate ``root / "theirs"``."""
    return migrate(root / "theirs", root / "out", Silent(), tokenizer)


def rules(made: Migrated) -> list[str]:
    """Return the findings' numbers."""
    return [finding["rule"] for finding in made.report["findings"]]


@pytest.mark.parametrize("sharing", ["whole", "columns"])
def test_an_embedding_that_is_not_cut_by_rows_comes_back(tmp_path: Path, sharing: str) -> None:
    """The converter's default leaves it whole on every rank; --embedding_sharding_dim 1 cuts columns."""
    source, ranks = theirs(tmp_path)
    table = whole_embedding(ranks, 2, VOCAB)

    def change(file: str, tensors: Tensors) -> None:
        half = table.shape[1] // 2
        part = table if sharing == "whole" else table[:, half:] if file == "rank1.safetensors" else table[:, :half]
        tensors[EMBEDDING] = of_array("BF16", part)

    changed(ranks, change)
    described(ranks, use_parallel_embedding=sharing == "columns", embedding_sharding_dim=1)
    brought(tmp_path)
    assert [] == same_files(source, tmp_path / "out")


def test_a_head_that_is_not_stored_is_the_embedding(tmp_path: Path) -> None:
    """share_embedding_table: the last stage has no head, and config.json says that the two are tied."""
    source, ranks = theirs(tmp_path, pipeline=2, tie_word_embeddings=True)
    changed(ranks, lambda _, tensors: tensors.pop(HEAD, None) and tensors)
    described(ranks, share_embedding_table=True)
    brought(tmp_path)
    assert [] == same_files(source, tmp_path / "out")
    assert load_model(tmp_path / "out").tied_embeddings


@pytest.mark.parametrize(
    ("family", "changes", "architecture"),
    [
        ("qwen2", {"architecture": "QWenForCausalLM"}, "Qwen2ForCausalLM"),
        ("qwen3", {"architecture": "QWenForCausalLM"}, "Qwen3ForCausalLM"),
        ("qwen3_moe", {"architecture": "QWenForCausalLM"}, "Qwen3MoeForCausalLM"),
        ("mixtral", {"architecture": "LlamaForCausalLM"}, "MixtralForCausalLM"),
        ("llama", {"mapping__moe_tp_size": 2, "mapping__moe_ep_size": 1}, "LlamaForCausalLM"),
        ("mixtral", {"mapping__moe_tp_size": -1, "mapping__moe_ep_size": -1}, "MixtralForCausalLM"),
        ("llama", {"head_size": None, "num_key_value_heads": 2, "moe__num_experts": 0}, "LlamaForCausalLM"),
        ("llama", {"quantization__quant_algo": "NO_QUANT", "qk_layernorm": None}, "LlamaForCausalLM"),
    ],
)  # fmt: skip
def test_other_words_for_the_same_model_are_understood(
    tmp_path: Path, family: str, changes: dict[str, Any], architecture: str
) -> None:
    """ModelOpt's word for Qwens, the class that reads Mixtral, ranks that follow from others, defaults left out."""
    source, ranks = theirs(tmp_path, family)
    described(ranks, **changes)
    brought(tmp_path)
    assert [] == same_files(source, tmp_path / "out")
    assert architecture == load_model(tmp_path / "out").architecture


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_biases_and_norms_of_heads_are_seen_where_no_key_states_them(tmp_path: Path, family: str) -> None:
    """ModelOpt writes neither attn_bias nor qk_layernorm: the tensors tell."""
    more = {"attention_bias": True, "mlp_bias": True} if family == "llama" else {}
    source, ranks = theirs(tmp_path, family, **more)
    described(ranks, attn_bias=None, mlp_bias=None, qk_layernorm=None)
    brought(tmp_path)
    assert [] == same_files(source, tmp_path / "out")


@pytest.mark.parametrize("told", [True, False])
def test_a_rope_that_no_key_states_is_asked_of_the_tokenizers_folder(tmp_path: Path, *, told: bool) -> None:
    """Its config.json has the base and the scaling; without it what engines take is written, and a finding says so."""
    linear = {"rope_type": "linear", "factor": 2.0}
    source, ranks = theirs(tmp_path, rope_theta=500000.0, rope_scaling=linear)
    described(ranks, rotary_base=None, rotary_scaling=None)
    made = brought(tmp_path, source if told else None)
    rope = load_model(tmp_path / "out").rope
    assert ((500000.0, "linear") if told else (10000.0, "default")) == (rope.theta, rope.kind)
    (said,) = (one for one in made.report["findings"] if one["rule"] == "CK14")
    assert ("info" if told else "warning") == said["severity"]


def test_fp8_codes_that_lie_as_bytes_are_fp8(tmp_path: Path) -> None:
    """Files from before safetensors knew e4m3 hold the same bits as I8."""
    _, ranks = theirs(tmp_path, weights="fp8", kv_cache="fp8")
    migrate(tmp_path / "ranks", tmp_path / "plain", Silent())

    def as_bytes(_: str, tensors: Tensors) -> Tensors:
        return {
            name: tensor._replace(dtype="I8") if tensor.dtype == "F8_E4M3" else tensor
            for name, tensor in tensors.items()
        }

    changed(ranks, as_bytes)
    brought(tmp_path)
    assert [] == same_files(tmp_path / "plain", tmp_path / "out")


def test_drafting_heads_are_left_out_and_named(tmp_path: Path) -> None:
    """Of a Medusa checkpoint the model comes back, and a finding counts the heads that did not."""
    source, ranks = theirs(tmp_path)
    heads = {f"medusa_heads.{n}.lm_head.weight": Stored("BF16", (1, 2), b"\0\0\0\0") for n in range(2)}
    changed(ranks, with_tensors(heads))
    described(ranks, architecture="MedusaForCausalLM", num_medusa_heads=2, max_draft_len=63)
    made = brought(tmp_path)
    assert [] == same_files(source, tmp_path / "out")
    (said,) = (one for one in made.report["findings"] if one["rule"] == "CK8")
    assert "2 tensors: medusa_heads.0.lm_head.weight, medusa_heads.1.lm_head.weight" == said["compared"]
    assert heads.keys() <= made.report["left_out"].keys()


def test_tensors_that_loaders_make_anew_are_left_out(tmp_path: Path) -> None:
    """Rotary tables in the files are nothing of the model's."""
    source, ranks = theirs(tmp_path)
    changed(ranks, with_tensors({"transformer.rotary_inv_freq": Stored("F32", (1,), b"\0\0\0\0")}))
    made = brought(tmp_path)
    assert [] == same_files(source, tmp_path / "out")
    assert {"transformer.rotary_inv_freq": "made anew by every loader"} == made.report["left_out"]


@pytest.mark.parametrize("knows", [True, False])
def test_a_vocabulary_that_was_filled_up_is_cut_where_somebody_knows(tmp_path: Path, *, knows: bool) -> None:
    """ModelOpt's AWQ pads to a multiple of 64: config.json beside the tokenizer has the real size; else it stays."""
    source, ranks = theirs(tmp_path, tensor=1)
    more = 320 - VOCAB

    def change(_: str, tensors: Tensors) -> None:
        for name in (EMBEDDING, HEAD):
            tensors[name] = of_array("BF16", np.pad(bits_of(tensors[name]), ((0, more), (0, 0))))

    changed(ranks, change)
    described(ranks, vocab_size=320)
    made = brought(tmp_path, source if knows else None)
    assert (VOCAB if knows else 320) == load_model(tmp_path / "out").vocab
    assert knows == (same_files(source, tmp_path / "out") == [])
    (said,) = (one for one in made.report["findings"] if one["rule"] == "CK7")
    assert said["compared"].startswith("320 rows in the ranks, 272 in" if knows else "48 of 320 rows")


def test_rows_that_mean_something_are_never_cut(tmp_path: Path) -> None:
    """A smaller vocab_size beside the tokenizer does not count where rows behind it hold numbers."""
    source, _ = theirs(tmp_path, tensor=1)
    other = write_tiny_model(tmp_path / "other", "llama", vocab_size=269)
    brought(tmp_path, other)
    assert VOCAB == load_model(tmp_path / "out").vocab
    assert [] == same_files(source, tmp_path / "out")


def test_a_router_that_16_bit_cannot_hold_keeps_float32(tmp_path: Path) -> None:
    """Its numbers are not rounded, and a finding names it."""
    source, ranks = theirs(tmp_path, "mixtral")
    name = "transformer.layers.0.mlp.router.weight"

    def change(_: str, tensors: Tensors) -> None:
        values = np.frombuffer(tensors[name].data, np.float32) * np.float32(1 + 2**-12)
        tensors[name] = of_array("F32", values.reshape(tensors[name].shape))

    changed(ranks, change)
    made = brought(tmp_path)
    held = read_file(tmp_path / "out" / "model.safetensors")
    assert ("F32", "BF16") == tuple(held[f"model.layers.{n}.block_sparse_moe.gate.weight"][0] for n in (0, 1))
    assert "CK11" in rules(made)
    assert ["model.safetensors: model.layers.0.block_sparse_moe.gate.weight"] == same_files(source, tmp_path / "out")


def test_smoothquant_comes_back_with_its_factors(tmp_path: Path) -> None:
    """Codes, scales of rows, factors of inputs and input scales: the values are those of an independent reader."""
    source, _ = theirs(tmp_path)
    write_smoothed(tmp_path / "ranks", tmp_path / "smooth")
    shown = copied(tmp_path / "ranks", tmp_path / "described")
    (tmp_path / "smooth" / "config.json").write_bytes((shown / "config.json").read_bytes())
    described(tmp_path / "smooth", quantization__quant_algo="W8A8_SQ_PER_CHANNEL")
    give_rows_one_scale(tmp_path / "smooth")
    made = migrate(tmp_path / "smooth", tmp_path / "out", Silent(), source)
    assert "int8_sq" == made.report["weights"]
    opened, name = open_checkpoint(tmp_path / "out"), "model.layers.0.self_attn.k_proj"
    factor = opened.weights.input_factor(name)
    assert factor is not None
    wanted = RankFolder(tmp_path / "smooth").reassembled()[f"{name}.weight"]
    assert np.array_equal(wanted, opened.weights.tensor(f"{name}.weight") * factor)


def give_rows_one_scale(folder: Path) -> None:
    """Give both ranks the scales of rows that a maker takes from whole rows, as ModelOpt does."""
    files = {path.name: read_file(path) for path in sorted(folder.glob("rank*.safetensors"))}
    first, second = files.values()

    def change(_: str, tensors: Tensors) -> None:
        for name in tensors:
            if name.endswith(("dense.weights_scaling_factor", "proj.weights_scaling_factor")):
                tensors[name] = of_array("F32", np.maximum(first[name][1], second[name][1]))

    changed(folder, change)


def test_awq_comes_back_over_ranks(tmp_path: Path) -> None:
    """Two codes in a byte, scales of groups, factors: cut by rows and by columns, and read as the ranks are."""
    source, ranks = theirs(tmp_path, hidden_size=128, head_dim=32)
    changed(ranks, lambda _, tensors: {**tensors, **_awq(tensors)})
    described(ranks, quantization__quant_algo="W4A16_AWQ", quantization__group_size=GROUP)
    made = brought(tmp_path, source)
    assert ("int4_awq", [], 64) == (
        made.report["weights"], rules(made), load_model(tmp_path / "out").stored.group_size,  # type: ignore[union-attr]
    )  # fmt: skip
    opened, wanted = open_checkpoint(tmp_path / "out"), RankFolder(ranks).reassembled()
    for short in ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"):
        module = f"model.layers.1.{short}"
        factor = opened.weights.input_factor(module)
        assert factor is not None
        assert np.array_equal(wanted[f"{module}.weight"], opened.weights.tensor(f"{module}.weight") * factor)
    assert {"quant_algo": "W4A16_AWQ", "group_size": 64}.items() <= _quantization(tmp_path / "out").items()


def _awq(tensors: Tensors) -> Tensors:
    """Return random codes for every linear weight, with scales and a factor that is the same on all ranks."""
    found: Tensors = {}
    for name, stored in tensors.items():
        if not (name.endswith(".weight") and (".attention." in name or ".mlp." in name)):
            continue
        (rows, columns), seed = stored.shape, np.random.default_rng(len(found))
        module = name.removesuffix(".weight")
        found[name] = of_array("I8", seed.integers(-128, 128, (rows // 2, columns), np.int8))
        scales = seed.uniform(0.01, 0.02, (rows, columns // GROUP)).astype(np.float32)
        found[f"{module}.weights_scaling_factor"] = of_array("F32", scales)
        factor = np.full(columns, 2.0, np.float32).view(np.uint32) >> 16
        found[f"{module}.prequant_scaling_factor"] = of_array("BF16", factor.astype(np.uint16))
    return found


def _quantization(folder: Path) -> dict[str, Any]:
    section: dict[str, Any] = json.loads((folder / "hf_quant_config.json").read_text("utf-8"))["quantization"]
    return section
