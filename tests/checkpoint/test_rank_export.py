"""An engine's checkpoint whose weights NVIDIA ModelOpt makes: what of its ranks is taken, refused and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.fake_worker import by_modelopt, request_of, runs_of, write_interpreter
from tests.checkpoint.rank_export import FACTOR, write_smoothed
from tests.checkpoint.ranks import RankFolder, Steps, bf16_values, rank_plan
from tests.support.quantised import Stored, read_safetensors, write_stored
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_reference, open_checkpoint
from trtllm_kit.errors import TensorError, WorkerFailed
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent

QKV, MLP = "transformer.layers.0.attention.qkv", "transformer.layers.1.mlp.fc"
NAN, MINUS = np.array([0x7FC0], np.uint16).tobytes(), np.array([0xBF80], np.uint16).tobytes()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write a small model, and beside it its two ranks as ModelOpt would export them."""
    folder = write_tiny_model(tmp_path / "source", "qwen2", seed=7)
    convert(folder, rank_plan(folder, 2, kv_cache="int8"), tmp_path / "plain", Silent())
    write_smoothed(tmp_path / "plain", tmp_path / "environment" / "export")
    return folder


@pytest.fixture
def plan(source: Path, tmp_path: Path) -> Plan:
    """Plan int8_sq with an INT8 cache on two ranks, made in the stand-in's environment."""
    interpreter = write_interpreter(tmp_path / "environment")
    return by_modelopt(rank_plan(source, 2, weights="int8_sq", kv_cache="int8"), interpreter)


def change(path: Path, name: str, **fields: Any) -> None:
    """Replace fields of one tensor of a file; ``data`` stands in front of what was there."""
    tensors = read_safetensors(path)
    old = tensors.get(name, Stored("F32", (1,), bytes(4)))
    if "data" in fields:
        fields["data"] = fields["data"] + old.data[len(fields["data"]) :]
    write_stored(path, tensors | {name: old._replace(**fields)})


def test_ranks_are_taken_as_they_are(source: Path, plan: Plan, tmp_path: Path) -> None:
    """The weight files are ModelOpt's bytes, config.json is the kit's, and a rerun starts nothing."""
    made = convert(source, plan, tmp_path / "out", Silent())
    for name in ("rank0.safetensors", "rank1.safetensors"):
        assert (tmp_path / "environment" / "export" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    section = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["quantization"]
    assert ("W8A8_SQ_PER_CHANNEL", "INT8") == (section["quant_algo"], section["kv_cache_quant_algo"])
    assert made.report is not None
    assert convert(source, plan, tmp_path / "out", Silent()).up_to_date
    assert 1 == runs_of(tmp_path / "environment")


def test_the_split_and_the_word_of_the_family_are_asked_for(source: Path, plan: Plan, tmp_path: Path) -> None:
    """ModelOpt is told how many ranks there are, and of which scales of a cache the release knows."""
    convert(source, plan, tmp_path / "out", Silent())
    scales = [f"{part}_cache_scaling_factor" for part in ("kv", "k", "v")]
    expected = {"tensor": 2, "pipeline": 1, "decoder": "qwen", "cache_scales": scales}
    assert expected == request_of(tmp_path / "environment")["ranks"]


def test_ranks_are_read_back_with_their_factors(source: Path, plan: Plan, tmp_path: Path) -> None:
    """Each weight is half of the source's within half a code, and its input is multiplied by two."""
    convert(source, plan, tmp_path / "out", Silent())
    opened, wanted = open_checkpoint(tmp_path / "out"), bf16_values(source / "model.safetensors")
    steps = Steps(tmp_path / "out").reassembled()
    for name in (name for name in wanted if name.endswith("_proj.weight")):
        factor = opened.weights.input_factor(name.removesuffix(".weight"))
        assert factor is not None
        assert {FACTOR} == set(factor.tolist())
        assert "int8_sq" == opened.weights.number_format(name)
        error = np.abs(opened.weights.tensor(name) * factor - wanted[name])
        assert 0 < error.max()
        assert (error <= 0.5001 * steps[name]).all(), name


@pytest.mark.parametrize(
    ("rank", "name", "fields", "told"),
    [
        (1, f"{MLP}.weights_scaling_factor", {"data": bytes(4)}, r"fc.weights_scaling_factor holds \[0.0\]"),
        (0, f"{QKV}.prequant_scaling_factor", {"data": NAN}, r"qkv.prequant_scaling_factor holds \[nan\]"),
        (1, f"{QKV}.prequant_scaling_factor", {"data": MINUS}, r"qkv.prequant_scaling_factor holds \[-1.0\]"),
        (1, "transformer.ln_f.weight", {"data": b"\1\1"}, "transformer.ln_f.weight changed"),
        (0, f"{QKV}.weight", {"dtype": "U8"}, "qkv.weight is U8"),
        (1, "stowaway", {}, "stowaway was not asked for"),
    ],
)
def test_a_rank_that_is_not_what_was_asked_for_is_refused(
    rank: int, name: str, fields: dict[str, Any], told: str, source: Path, plan: Plan, tmp_path: Path
) -> None:
    """Names, dtypes, scales, factors and what stays in 16 bit, norms too, are looked at in every rank."""
    change(tmp_path / "environment" / "export" / f"rank{rank}.safetensors", name, **fields)
    with pytest.raises(WorkerFailed, match=told):
        convert(source, plan, tmp_path / "out", Silent())
    assert not (tmp_path / "out").exists()


def test_a_rank_too_few_is_refused(source: Path, plan: Plan, tmp_path: Path) -> None:
    """ModelOpt's files must be those of the plan's split."""
    (tmp_path / "environment" / "export" / "rank1.safetensors").unlink()
    with pytest.raises(WorkerFailed, match=r"exported rank0.safetensors"):
        convert(source, plan, tmp_path / "out", Silent())


@pytest.mark.parametrize("data", [NAN, MINUS, bytes(2)])
def test_a_factor_that_is_none_is_not_read(data: bytes, source: Path, plan: Plan, tmp_path: Path) -> None:
    """NaN, a negative number and zero in a published rank are refused with tensor and file."""
    convert(source, plan, tmp_path / "out", Silent())
    change(tmp_path / "out" / "rank1.safetensors", f"{QKV}.prequant_scaling_factor", data=data)
    opened = open_checkpoint(tmp_path / "out")
    with pytest.raises(TensorError, match=r"qkv.prequant_scaling_factor of rank1.safetensors") as refused:
        load_reference(tmp_path / "out")
    assert "above zero" in refused.value.why
    assert opened.weights.input_factor("model.layers.1.mlp.up_proj") is not None


@pytest.mark.parametrize("name", [f"{MLP}.weights_scaling_factor", f"{QKV}.activation_scaling_factor"])
@pytest.mark.parametrize("value", [float("inf"), -1.0])
def test_a_scale_that_is_none_is_not_read(name: str, value: float, source: Path, plan: Plan, tmp_path: Path) -> None:
    """Neither of a weight nor of an input."""
    convert(source, plan, tmp_path / "out", Silent())
    change(tmp_path / "out" / "rank0.safetensors", name, data=np.float32(value).tobytes())
    with pytest.raises(TensorError, match=name):
        load_reference(tmp_path / "out")


def test_what_an_int8_cache_loses_is_counted(source: Path, tmp_path: Path) -> None:
    """Its keys are whole numbers of the scale; plain ranks with a cache of 16 bit lose nothing."""
    convert(source, rank_plan(source, 2), tmp_path / "wide", Silent())
    tokens = [5, 80, 120, 33, 9, 200, 41, 17]
    models = [load_reference(folder) for folder in (source, tmp_path / "wide", tmp_path / "plain")]
    wanted, wide, narrow = (model.forward(tokens, model.new_cache()) for model in models)
    assert np.array_equal(wanted, wide)
    lost = float(np.linalg.norm(wanted - narrow) / np.linalg.norm(wanted))
    assert 1e-4 < lost < 0.05
    cache = models[2].new_cache().layers[0]
    keys, _ = cache.append(*(np.full((1, 2, 16), 0.3, np.float32),) * 2)
    scale = RankFolder(tmp_path / "plain").values(0, 0, "transformer.layers.0.attention.kv_cache_scaling_factor").item()
    assert np.float32(np.clip(np.rint(0.3 / scale), -128, 127) * scale) == pytest.approx(float(keys[0, 0, 0]))
