"""Rank files that cannot be brought back: each is refused by what is wrong with it, and nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.foreign_ranks import (
    EMBEDDING,
    HEAD,
    Tensors,
    changed,
    copied,
    described,
    flipped,
    of_array,
    with_tensors,
)
from tests.checkpoint.rank_export import write_smoothed
from tests.checkpoint.ranks import rank_plan
from tests.support.quantised import Stored
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.from_ranks import migrate
from trtllm_kit.errors import (
    FormatNotMade,
    KitError,
    ManifestError,
    ModelConfigError,
    OutputOccupied,
    TensorError,
    UnknownArchitecture,
    UsageError,
    WeightFileError,
)
from trtllm_kit.progress import Silent

QKV = "transformer.layers.0.attention.qkv"
Change = Callable[[Path], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Rank files of four tensor ranks in BF16 and FP8, whose two KV heads lie on two ranks each."""
    root = tmp_path_factory.mktemp("ranks")
    source = write_tiny_model(root / "source", "llama", seed=3)
    convert(source, rank_plan(source, 4), root / "bf16", Silent())
    convert(source, rank_plan(source, 4, weights="fp8", kv_cache="fp8"), root / "fp8", Silent())
    write_smoothed(root / "bf16", root / "smooth")
    shutil.copy(root / "bf16" / "config.json", root / "smooth" / "config.json")
    return {name: root / name for name in ("source", "bf16", "fp8", "smooth")}


def in_file(number: int, name: str, change: Callable[[Stored], Stored | None]) -> Change:
    """Return what changes one tensor of one rank; None takes it out."""

    def act(_: str, tensors: Tensors) -> None:
        new = change(tensors.pop(name))
        tensors |= {} if new is None else {name: new}

    return lambda folder: changed(folder, act, f"rank{number}.safetensors")


def cut_short(folder: Path) -> None:
    """Take the last bytes off a file."""
    path = folder / "rank2.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def last_bit(stored: Stored) -> Stored:
    """Turn a bit of the last number over."""
    return flipped(stored, len(stored.data) - 2)


def as_codes(stored: Stored) -> Stored:
    """Return a weight's place filled with whole numbers of the converter's own."""
    return of_array("I8", np.zeros(stored.shape, np.int8))


def nan(stored: Stored) -> Stored:
    """Put NaN at the beginning."""
    return stored._replace(data=b"\xc0\x7f" + stored.data[2:])


def twice(stored: Stored) -> Stored:
    """Double a float32 scale."""
    return of_array("F32", np.frombuffer(stored.data, np.float32) * 2)


def with_fp8_head(_: str, tensors: Tensors) -> Tensors:
    """Quantise the head as well."""
    rows, columns = tensors[HEAD].shape
    one = Stored("F32", (1,), np.float32(1).tobytes())
    scales = {f"lm_head.{part}_scaling_factor": one for part in ("weights", "activation")}
    return {**tensors, HEAD: Stored("F8_E4M3", (rows, columns), bytes(rows * columns)), **scales}


CASES: dict[str, tuple[str, Change, type[KitError], str, str]] = {
    "a rank is missing": (
        "bf16", lambda folder: (folder / "rank3.safetensors").unlink(), WeightFileError,
        "1 rank file of", "tp_size 4 x pp_size 1 make 4 files, 3 are there"),
    "a rank too many": (
        "bf16", lambda folder: shutil.copy(folder / "rank0.safetensors", folder / "rank4.safetensors"), WeightFileError,
        "of no rank of its mapping: rank4.safetensors", "5 are there"),
    "a file ends early": ("bf16", cut_short, WeightFileError, "rank2.safetensors is truncated", "its header promises"),
    "a norm differs": (
        "bf16", in_file(2, "transformer.layers.1.input_layernorm.weight", flipped), TensorError,
        "model.layers.1.input_layernorm.weight is not the same in rank0.safetensors and rank2.safetensors",
        "1 of 64 numbers differ, the first at [0, 0]"),
    "a copied KV head differs": (
        "bf16", in_file(3, f"{QKV}.weight", last_bit), TensorError,
        "model.layers.0.self_attn.v_proj.weight is not the same in rank2.safetensors and rank3.safetensors",
        "1 of 1,024 numbers differ, the first at [31, 63]"),
    "a scale differs": (
        "fp8", in_file(1, f"{QKV}.weights_scaling_factor", twice), TensorError,
        "model.layers.0.self_attn.q_proj.weight_scale is not the same in rank0.safetensors and rank1.safetensors",
        "the unified layout keeps one number for all of it"),
    "a scale is missing": (
        "fp8", in_file(1, f"{QKV}.activation_scaling_factor", lambda _: None), TensorError,
        f"{QKV}.activation_scaling_factor of rank1.safetensors is missing", "fp8 weights have it"),
    "a scale is zero": (
        "fp8", lambda folder: changed(folder, lambda _, tensors: {
            **tensors, f"{QKV}.weights_scaling_factor": Stored("F32", (1,), bytes(4))}), TensorError,
        "scale model.layers.0.self_attn.q_proj.weight_scale is [0.0]", "finite and above zero"),
    "a scale is of another shape": (
        "fp8", in_file(0, f"{QKV}.weights_scaling_factor", lambda _: Stored("F32", (2,), bytes(8))), TensorError,
        f"{QKV}.weights_scaling_factor of rank0.safetensors is of shape [2]", "fp8 of [48, 64] has [1] or []"),
    "one rank has another format": (
        "fp8", lambda folder: shutil.copy(folder.parent / "bf16" / "rank2.safetensors", folder / "rank2.safetensors"),
        TensorError, "problems with the weights", "is fp8 in rank0.safetensors and plain in rank2.safetensors"),
    "a tensor is missing": (
        "bf16", in_file(0, f"{QKV}.weight", lambda _: None), TensorError,
        f"{QKV}.weight of rank0.safetensors is missing", "the model gives this rank [48, 64]"),
    "config.json has other heads": (
        "bf16", lambda folder: described(folder, num_attention_heads=8), TensorError,
        "problems with the weights", "is of shape (48, 64): the model gives this rank [64, 64]"),
    "a tensor has no place": (
        "bf16", lambda folder: changed(folder, with_tensors({"adapter.weight": Stored("F32", (1,), bytes(4))})),
        TensorError, "4 tensors of", "changes what it says"),
    "codes of the converter's own": (
        "bf16", lambda folder: changed(folder, lambda _, tensors: {
            **tensors, f"{QKV}.weight": as_codes(tensors[f"{QKV}.weight"]),
            f"{QKV}.per_channel_scale": Stored("BF16", (48,), bytes(96))}), TensorError,
        f"{QKV}.per_channel_scale of rank0.safetensors is of codes that cannot be undone", "--use_weight_only"),
    "rows have a scale in each rank": (
        "smooth", lambda _: None, TensorError, "o_proj.weight_scale is not the same in", "of 64 numbers differ"),
    "a weight is NaN": (
        "bf16", in_file(0, EMBEDDING, nan), TensorError, "model.embed_tokens.weight holds NaN", "every answer NaN"),
    "a head in FP8": (
        "fp8", lambda folder: changed(folder, with_fp8_head), FormatNotMade, "lm_head.weight is fp8", "in 16 bit"),
    "files of context ranks in several stages": (
        "bf16", lambda folder: described(folder, mapping__pp_size=2, mapping__cp_size=2, mapping__world_size=16),
        WeightFileError, "4 rank files of", "tp_size 4 x pp_size 2 make 8 files, 4 are there"),
    "an engine": (
        "bf16", lambda folder: described(folder, architecture=None, pretrained_config={}), ModelConfigError,
        "is an engine", "has no key architecture"),
    "a Hugging Face folder": ("source", lambda _: None, ModelConfigError, "is a Hugging Face model already", "no key"),
    "another family": (
        "bf16", lambda folder: described(folder, architecture="GPTForCausalLM"), UnknownArchitecture,
        "describes a GPTForCausalLM", "LlamaForCausalLM"),
    "a first Qwen": (
        "bf16", lambda folder: described(folder, architecture="QWenForCausalLM", qwen_type="qwen"), UnknownArchitecture,
        "describes a QWenForCausalLM of qwen_type qwen", "Qwen2ForCausalLM"),
    "learned positions": (
        "bf16", lambda folder: described(folder, position_embedding_type="learned_absolute"), ModelConfigError,
        "does not bring back", "1 of its keys"),
    "arithmetic of its own": (
        "bf16", lambda folder: described(folder, residual_mlp=True, rotary_pct=0.5, mlp_bias="x"), ModelConfigError,
        "does not bring back", "3 of its keys"),
    "multipliers of a Granite": (
        "bf16", lambda folder: described(folder, embedding_multiplier=12.0, residual_multiplier=0.22,
                                         attention_multiplier=1.0), ModelConfigError,
        "does not bring back", "2 of its keys"),
    "ranks that make no world": (
        "bf16", lambda folder: described(folder, mapping__world_size=6), ModelConfigError, "does not bring back",
        "1 of its keys"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_brought_back_is_refused(tmp_path: Path, made: dict[str, Path], case: str) -> None:
    """The error has the class, the place and the numbers, and no output stays."""
    base, change, kind, what, why = CASES[case]
    shutil.copytree(made["bf16"], tmp_path / "bf16")
    folder = copied(made[base], tmp_path / "theirs")
    change(folder)
    with pytest.raises(kind) as caught:
        migrate(folder, tmp_path / "out", Silent())
    told = str(caught.value)
    assert (what in told, why in told) == (True, True), told
    assert ["bf16", "theirs"] == sorted(path.name for path in tmp_path.iterdir())


class Meddling(Silent):
    """Changes a file once the work has begun."""

    def __init__(self, path: Path) -> None:
        """Take the file."""
        self._path = path

    def advance(self, amount: float) -> None:
        """Write to it."""
        del amount
        self._path.write_bytes(self._path.read_bytes() + b" ")


@pytest.mark.parametrize("name", ["config.json", "rank1.safetensors", "tokenizer.json"])
def test_files_that_change_under_its_hands_stop_it(tmp_path: Path, made: dict[str, Path], name: str) -> None:
    """What was made could hold parts of both, so no output stays; rank files and small ones alike."""
    folder = copied(made["bf16"], tmp_path / "theirs")
    with pytest.raises(WeightFileError, match=f"{name} changed during the run"):
        migrate(folder, tmp_path / "out", Meddling(folder / name))
    assert not (tmp_path / "out").exists()


def test_a_rank_file_that_was_exchanged_since_trtkit_wrote_it_is_told(tmp_path: Path, made: dict[str, Path]) -> None:
    """Ranks that took each other's names fit in every shape; the manifest beside them knows whose is which."""
    folder = tmp_path / "ours"
    shutil.copytree(made["bf16"], folder)
    for number, other in ((0, 1), (1, 0)):
        (folder / f"rank{number}.safetensors").write_bytes((made["bf16"] / f"rank{other}.safetensors").read_bytes())
    with pytest.raises(ManifestError, match=r"rank0\.safetensors does not match its manifest") as refused:
        migrate(folder, tmp_path / "out", Silent())
    assert refused.value.hint.endswith(f"where the change is meant, remove {folder / 'trtkit-manifest.json'}")
    assert not (tmp_path / "out").exists()


def test_a_change_that_was_meant_is_migrated_without_its_record(tmp_path: Path, made: dict[str, Path]) -> None:
    """The way that the refusal names works: rank files that somebody wrote anew go through once no record is there."""
    folder = tmp_path / "ranks"
    shutil.copytree(made["bf16"], folder)
    in_file(0, EMBEDDING, flipped)(folder)
    with pytest.raises(ManifestError):
        migrate(folder, tmp_path / "out", Silent())
    (folder / "trtkit-manifest.json").unlink()
    migrate(folder, tmp_path / "out", Silent())
    assert (tmp_path / "out" / "config.json").is_file()


def test_heads_that_no_rank_holds_are_missed(tmp_path: Path) -> None:
    """Three KV heads over two ranks with one each: the third is in no file, and no made-up numbers take its place."""
    source = write_tiny_model(tmp_path / "source", "llama", num_attention_heads=6, num_key_value_heads=3)
    convert(source, rank_plan(source, 2), tmp_path / "ranks", Silent())
    with pytest.raises(TensorError, match=r"the ranks hold 2,048 numbers of model.layers.0.self_attn.k_proj.weight"):
        migrate(tmp_path / "ranks", tmp_path / "out", Silent())


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, made: dict[str, Path]) -> None:
    """Its tokens have no row in the embedding."""
    other = write_tiny_model(tmp_path / "other", "llama", vocab_size=400)
    with pytest.raises(UsageError, match="it has 400 tokens, and the embedding 272 rows"):
        migrate(made["bf16"], tmp_path / "out", Silent(), other)


def test_a_folder_of_somebody_elses_is_not_replaced(tmp_path: Path, made: dict[str, Path]) -> None:
    """An output that holds other files stays as it is, and one in the source is refused."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputOccupied):
        migrate(made["bf16"], tmp_path / "out", Silent())
    assert "mine" == (tmp_path / "out" / "notes").read_text("utf-8")
    with pytest.raises(UsageError, match="lies in the source") as refused:
        migrate(made["bf16"], made["bf16"] / "out", Silent())
    assert f"{made['bf16']}-made, a folder beside it" == refused.value.hint
    assert "--out" not in str(refused.value)
