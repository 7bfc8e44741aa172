"""Conversions from end to end on tiny models: bytes, resume, manifests and what a reader is told."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.checkpoint.plans import plan_for
from tests.checkpoint.recorders import Interrupting, Recorder
from tests.support.tiny_model import FAMILIES, write_tiny_model
from trtllm_kit.artifact import MANIFEST, read_manifest, require_intact
from trtllm_kit.checkpoint.calibrate import FILE as CALIBRATION
from trtllm_kit.checkpoint.convert import conversion_steps, convert
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.header import INDEX
from trtllm_kit.checkpoint.load import load_reference
from trtllm_kit.checkpoint.plan_file import read_conversion
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.dtypes import decode_e4m3
from trtllm_kit.errors import CalibrationError, FormatNotMade, OutputOccupied, PlanDrift, TensorError
from trtllm_kit.plan.conversion import conversion_of
from trtllm_kit.progress import Silent
from trtllm_kit.spec.profile_formats import KvFormat, WeightFormat

WRITING = "writing weights"
ROOT = Path(__file__).resolve().parents[2]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def leftovers(folder: Path) -> list[str]:
    """Return what a run left beside its source."""
    return sorted(path.name for path in folder.iterdir() if path.name != "source")


def test_bf16_passes_every_byte_through(tmp_path: Path) -> None:
    """Each tensor of the output is the source's, and the small files are beside it."""
    source = write_tiny_model(tmp_path / "source", shards=2)
    conversion = convert(source, plan_for(source), tmp_path / "out", Silent())
    before, after = open_weights(source), open_weights(tmp_path / "out")
    assert before.tensors.keys() == after.tensors.keys()
    for name in before.tensors:
        np.testing.assert_array_equal(before.read(name), after.read(name))
    assert not conversion.up_to_date
    assert ["out"] == leftovers(tmp_path)
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= set(
        contents(tmp_path / "out")
    )
    assert conversion_of(plan_for(source)) == read_conversion(tmp_path / "out")


@pytest.mark.parametrize("family", FAMILIES)
def test_fp8_of_every_family_stays_close_to_its_source(family: str, tmp_path: Path) -> None:
    """Weights dequantise to within half a step, and the report's numbers are those of a sound conversion."""
    source = write_tiny_model(tmp_path / "source", family)
    manifest = convert(source, plan_for(source, "fp8", "fp8"), tmp_path / "out", Silent()).manifest
    before, after = open_weights(source), open_weights(tmp_path / "out")
    quantised = [name for name, tensor in after.tensors.items() if tensor.dtype == "F8_E4M3"]
    assert len(quantised) == manifest.facts["quantised_tensors"] > 0
    for name in quantised:
        scale_of = name.removesuffix(".weight") + (".weight_scale" if name.endswith(".weight") else "_weight_scale")
        scale = after.read(scale_of)
        exact = to_float32(before.read(name), "BF16")
        step = np.maximum(np.abs(exact) / 14, scale * 2**-9)
        assert (np.abs(decode_e4m3(after.read(name)) * scale - exact) <= step).all(), name
    assert manifest.facts["quality"]["logit_cosine"] > 0.97
    assert [] == manifest.facts["findings"]
    assert ("fp8", "fp8") == (manifest.facts["weights"], manifest.facts["kv_cache"])


def test_the_real_library_reads_an_fp8_checkpoint(tmp_path: Path) -> None:
    """Scales are float32 scalars, finite and positive."""
    source = write_tiny_model(tmp_path / "source")
    convert(source, plan_for(source, "fp8", "fp8"), tmp_path / "out", Silent())
    with safe_open(tmp_path / "out" / "model.safetensors", "np") as file:
        dtypes = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        scales = [file.get_tensor(name) for name in file.keys() if name.endswith("_scale")]  # noqa: SIM118
    assert {"BF16", "F8_E4M3", "F32"} == dtypes
    assert 32 == len(scales)
    for values in scales:
        assert ((), np.float32) == (values.shape, values.dtype)
        assert np.isfinite(values)
        assert values > 0


def test_the_dry_run_is_what_is_written(tmp_path: Path) -> None:
    """Names, dtypes, shapes and files of the steps are those on disk."""
    source = write_tiny_model(tmp_path / "source", "qwen3_moe")
    plan = plan_for(source, "fp8", "fp8")
    steps = conversion_steps(source, plan)
    assert ["source"] == [path.name for path in tmp_path.iterdir()]
    convert(source, plan, tmp_path / "out", Silent())
    stored = open_weights(tmp_path / "out").tensors
    assert [(step.name, step.dtype, step.shape, step.file) for step in steps] == [
        (name, tensor.dtype, tensor.shape, tensor.file.name) for name, tensor in stored.items()
    ]


def test_a_large_checkpoint_has_shards_and_an_index(tmp_path: Path) -> None:
    """The index names every tensor and their size in all."""
    source = write_tiny_model(tmp_path / "source")
    manifest = convert(source, plan_for(source), tmp_path / "out", Silent(), shard_bytes=50_000).manifest
    index = json.loads((tmp_path / "out" / INDEX).read_text())
    assert index["metadata"]["total_size"] == manifest.facts["weight_bytes"]
    assert len(set(index["weight_map"].values())) == manifest.facts["weight_files"] > 2
    assert open_weights(source).tensors.keys() == open_weights(tmp_path / "out").tensors.keys()


def test_the_same_source_and_plan_give_the_same_bytes_anywhere(tmp_path: Path) -> None:
    """No clock, host or path is in any file."""
    folders = []
    for name in ("a", "b"):
        source = write_tiny_model(tmp_path / name / "source")
        convert(source, plan_for(source, "fp8", "fp8"), tmp_path / name / "out", Silent())
        folders.append(contents(tmp_path / name / "out"))
    assert folders[0] == folders[1]


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    """The manifest's key says that all is there."""
    source = write_tiny_model(tmp_path / "source")
    plan = plan_for(source, "fp8", "fp8")
    convert(source, plan, tmp_path / "out", Silent())
    recorder = Recorder()
    assert convert(source, plan, tmp_path / "out", recorder).up_to_date
    assert {} == recorder.done


@pytest.mark.parametrize("change", ["formats", "weights", "tokenizer", "samples", "lost file"])
def test_a_change_of_anything_makes_it_again(tmp_path: Path, change: str) -> None:
    """Formats, weights of the same shapes, copied files, calibration, and a file that went missing."""
    source = write_tiny_model(tmp_path / "source")
    plan = plan_for(source, "fp8", "fp8")
    convert(source, plan, tmp_path / "out", Silent())
    match change:
        case "formats":
            plan = plan_for(source, "fp8", "bf16")
        case "weights":
            write_tiny_model(source, seed=1)
        case "tokenizer":
            (source / "tokenizer_config.json").write_text("{}")
        case "samples":
            plan = plan_for(source, "fp8", "fp8", samples=3)
        case _:
            (tmp_path / "out" / "model.safetensors").unlink()
    conversion = convert(source, plan, tmp_path / "out", Silent())
    assert not conversion.up_to_date
    require_intact(tmp_path / "out", read_manifest(tmp_path / "out", "checkpoint"))


def test_an_interrupted_run_goes_on_at_its_shard_and_gives_the_same_bytes(tmp_path: Path) -> None:
    """Shards and scales that were finished are not made again."""
    source = write_tiny_model(tmp_path / "source")
    plan = plan_for(source, "fp8", "fp8")
    convert(source, plan, tmp_path / "whole", Silent(), shard_bytes=30_000)
    with pytest.raises(KeyboardInterrupt):
        convert(source, plan, tmp_path / "out", Interrupting(WRITING, after=60_000), shard_bytes=30_000)
    assert not (tmp_path / "out").exists()
    recorder = Recorder()
    convert(source, plan, tmp_path / "out", recorder, shard_bytes=30_000)
    assert "calibrating" not in recorder.done
    assert 0 < recorder.done[WRITING] < read_manifest(tmp_path / "out").facts["weight_bytes"] - 30_000
    assert contents(tmp_path / "whole") == contents(tmp_path / "out")


def test_a_killed_run_goes_on_too(tmp_path: Path) -> None:
    """SIGKILL in the middle of a shard leaves a stage that the next run takes up."""
    source = write_tiny_model(tmp_path / "source")
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.checkpoint.plans import plan_for
from tests.checkpoint.recorders import Killing
from trtllm_kit.checkpoint.convert import convert
source, out = Path({str(source)!r}), Path({str(tmp_path / "out")!r})
convert(source, plan_for(source), out, Killing("writing weights", 120_000), shard_bytes=50_000)
"""
    assert -9 == subprocess.run([sys.executable, "-c", script], check=False, capture_output=True).returncode
    assert not (tmp_path / "out").exists()
    recorder = Recorder()
    convert(source, plan_for(source), tmp_path / "out", recorder, shard_bytes=50_000)
    assert recorder.totals[WRITING] < 200_000
    convert(source, plan_for(source), tmp_path / "whole", Silent(), shard_bytes=50_000)
    assert contents(tmp_path / "whole") == contents(tmp_path / "out")


def test_a_resumed_run_of_another_plan_starts_afresh(tmp_path: Path) -> None:
    """Half of an FP8 checkpoint is no part of a BF16 one."""
    source = write_tiny_model(tmp_path / "source")
    with pytest.raises(KeyboardInterrupt):
        convert(source, plan_for(source, "fp8"), tmp_path / "out", Interrupting(WRITING, 60_000), shard_bytes=30_000)
    convert(source, plan_for(source), tmp_path / "out", Silent())
    assert CALIBRATION not in contents(tmp_path / "out")


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    """What is advanced is what was announced, and it is the size of the tensors."""
    source = write_tiny_model(tmp_path / "source")
    recorder = Recorder()
    manifest = convert(source, plan_for(source, "fp8", "fp8"), tmp_path / "out", recorder).manifest
    assert manifest.facts["weight_bytes"] == recorder.totals[WRITING] == recorder.done[WRITING]
    assert 2 == recorder.done["calibrating"]


def test_gate_and_up_scales_of_an_expert_are_equal_on_disk(tmp_path: Path) -> None:
    """Both weights are divided by the larger amax."""
    source = write_tiny_model(tmp_path / "source", "mixtral")
    convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent())
    weights = open_weights(tmp_path / "out")
    base = "model.layers.0.block_sparse_moe.experts.3."
    assert weights.read(f"{base}w1.weight_scale") == weights.read(f"{base}w3.weight_scale")


def test_an_all_zero_weight_gets_a_positive_scale(tmp_path: Path) -> None:
    """A pruned projection is converted, and loads."""
    source = write_tiny_model(tmp_path / "source")
    weights = open_weights(source)
    tensor = weights.tensors["model.layers.0.mlp.up_proj.weight"]
    data = bytearray(tensor.file.read_bytes())
    data[tensor.begin : tensor.begin + tensor.nbytes] = bytes(tensor.nbytes)
    tensor.file.write_bytes(data)
    convert(source, plan_for(source, "fp8", "fp8"), tmp_path / "out", Silent())
    made = open_weights(tmp_path / "out")
    assert 1.0 == made.read("model.layers.0.mlp.up_proj.weight_scale")
    assert np.isfinite(load_reference(tmp_path / "out").forward([1, 2], load_reference(source).new_cache())).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_dtypes_are_converted(tmp_path: Path, dtype: str) -> None:
    """Float32 is rounded to BF16 with a warning, float16 stays; both can become FP8."""
    source = write_tiny_model(tmp_path / "source", dtype=dtype)
    plain = convert(source, plan_for(source), tmp_path / "plain", Silent()).manifest
    dtypes = {tensor.dtype for tensor in open_weights(tmp_path / "plain").tensors.values()}
    assert dtypes == ({"BF16"} if dtype == "float32" else {"F16"})
    assert [finding["rule"] for finding in plain.facts["findings"]] == (["CK1"] if dtype == "float32" else [])
    fp8 = convert(source, plan_for(source, "fp8", "fp8"), tmp_path / "fp8", Silent()).manifest
    assert fp8.facts["quality"]["logit_cosine"] > 0.97


def test_findings_tell_what_a_reader_should_know(tmp_path: Path) -> None:
    """A pattern that matches nothing, a short text and experts without tokens are warnings in the manifest."""
    source = write_tiny_model(tmp_path / "source", "qwen3_moe", num_experts=64, num_experts_per_tok=1)
    text = tmp_path / "text.txt"
    text.write_text("the end")
    plan = plan_for(source, "fp8", "fp8", exclude=("lm_head", "nothing.*"), samples=5, text=str(text))
    facts = convert(source, plan, tmp_path / "out", Silent()).manifest.facts
    assert ["CK2", "CK3", "CK4"] == [finding["rule"] for finding in facts["findings"]]
    assert "unmatched: nothing.*" == facts["findings"][0]["compared"]
    assert facts["calibration"]["experts_without_tokens"] > 0


@pytest.mark.parametrize(("weights", "told"), [("int8_wo", ["CK2"]), ("bf16", [])])
def test_an_idle_pattern_is_told_of_whatever_the_format(tmp_path: Path, weights: WeightFormat, told: list[str]) -> None:
    """CK2 is for every format that leaves 16 bit; without one there is nothing to exclude."""
    source = write_tiny_model(tmp_path / "source")
    plan = plan_for(source, weights, exclude=("lm_head", "nothing.*"))
    facts = convert(source, plan, tmp_path / "out", Silent()).manifest.facts
    assert told == [finding["rule"] for finding in facts["findings"]]


def test_an_fp8_cache_over_plain_weights_is_reported_with_its_scale_of_one(tmp_path: Path) -> None:
    """The checkpoint is the plain one; the report shows what the runtime's FP8 cache costs."""
    source = write_tiny_model(tmp_path / "source")
    facts = convert(source, plan_for(source, "bf16", "fp8"), tmp_path / "out", Silent()).manifest.facts
    assert 0.9 < facts["quality"]["logit_cosine"] < 1.0
    assert "fp8" == load_reference(tmp_path / "out").kv_format
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())


def test_a_plan_for_another_model_is_refused(tmp_path: Path) -> None:
    """The plan names heads and layers the source does not have."""
    source = write_tiny_model(tmp_path / "source")
    other = write_tiny_model(tmp_path / "other", num_hidden_layers=3)
    with pytest.raises(PlanDrift, match="not the model of the plan"):
        convert(source, plan_for(other), tmp_path / "out", Silent())


@pytest.mark.parametrize(("weights", "kv_cache"), [("int8_sq", "bf16"), ("fp8", "int8"), ("int8_sq", "int8")])
def test_a_format_that_is_not_made_here_is_refused_before_anything_is_read(
    weights: WeightFormat, kv_cache: KvFormat, tmp_path: Path
) -> None:
    """Neither the dry run nor convert begins, and the hint names the formats that are made."""
    source = write_tiny_model(tmp_path / "source")
    (source / "model.safetensors").write_bytes(b"never looked at")
    plan = plan_for(source, weights, kv_cache)
    for attempt in (lambda: conversion_steps(source, plan), lambda: convert(source, plan, tmp_path / "out", Silent())):
        with pytest.raises(FormatNotMade, match=r"does not make (weights int8_sq|kv_cache int8)") as caught:
            attempt()
        assert caught.value.hint.endswith(
            ", ".join(
                f"quantization.{part}: fp8"
                for part, chosen in (("weights", weights), ("kv_cache", kv_cache))
                if chosen.startswith("int8")
            )
        )
    assert [] == leftovers(tmp_path)


def test_a_folder_of_someone_else_is_not_replaced(tmp_path: Path) -> None:
    """An output path that holds something else is refused, and stays."""
    source = write_tiny_model(tmp_path / "source")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputOccupied):
        convert(source, plan_for(source), tmp_path / "out", Silent())
    assert ["thesis.tex"] == list(contents(tmp_path / "out"))


def test_a_failed_second_conversion_leaves_the_first(tmp_path: Path) -> None:
    """NaN in a new source is found while writing; the old checkpoint stays whole."""
    source = write_tiny_model(tmp_path / "source")
    convert(source, plan_for(source), tmp_path / "out", Silent())
    before = contents(tmp_path / "out")
    tensor = open_weights(source).tensors["model.norm.weight"]
    data = bytearray(tensor.file.read_bytes())
    data[tensor.begin : tensor.begin + 2] = b"\xc0\x7f"
    tensor.file.write_bytes(data)
    with pytest.raises(TensorError, match=r"model\.norm\.weight holds NaN"):
        convert(source, plan_for(source), tmp_path / "out", Silent())
    assert before == contents(tmp_path / "out")
    assert ["out"] == leftovers(tmp_path)
    assert MANIFEST in before


def test_a_text_that_changed_since_the_plan_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """The plan holds the hash of the text; the same text elsewhere will do, another one will not."""
    source = write_tiny_model(tmp_path / "source")
    text, moved = tmp_path / "text.txt", tmp_path / "moved.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 20, encoding="utf-8")
    known = hashlib.sha256(text.read_bytes()).hexdigest()
    first = convert(source, plan_for(source, "fp8", text=str(text), text_sha256=known), tmp_path / "out", Silent())
    text.rename(moved)
    plan = plan_for(source, "fp8", text=str(moved), text_sha256=known)
    again = convert(source, plan, tmp_path / "out", Silent())
    assert (False, True) == (first.up_to_date, again.up_to_date)
    moved.write_text("another text", encoding="utf-8")
    with pytest.raises(PlanDrift, match=f"the plan has {known[:12]}"):
        convert(source, plan, tmp_path / "other", Silent())
    assert not (tmp_path / "other").exists()


def test_an_empty_calibration_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """There is nothing to measure."""
    source = write_tiny_model(tmp_path / "source")
    text = tmp_path / "empty.txt"
    text.write_text("")
    with pytest.raises(CalibrationError, match="empty"):
        convert(source, plan_for(source, "fp8", text=str(text)), tmp_path / "out", Silent())
    assert ["empty.txt"] == leftovers(tmp_path)
