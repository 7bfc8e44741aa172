"""The road of a checkpoint that comes quantised, with the installed command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import trtkit
from tests.support.quantised import change_config, read_safetensors, write_quantised
from tests.support.tiny_model import write_tiny_model

PROFILE = """\
schema_version: 1
name: tiny
hardware: cpu-rehearsal
trtllm_version: "1.2.1"
runtime: reference
limits: {max_batch_size: 2, max_num_tokens: 256, max_seq_len: 256}
load: {input_tokens: 64, output_tokens: 64}
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Give a profile that leaves the number formats out."""
    path = tmp_path / "profile.yaml"
    path.write_text(PROFILE)
    return path


def test_plan_convert_and_build_take_nvidias_form_without_a_word_about_formats(tmp_path: Path, profile: Path) -> None:
    """The plan says what the checkpoint holds; the engine serves its FP8 cache; the weights are theirs."""
    write_quantised(tmp_path / "model", "fp8")
    plan = trtkit("plan", tmp_path / "model", "-p", profile, "--json")
    assert 0 == plan.code, plan.err
    assert '"passed_through"' in plan.out
    for verb, source, out in (("convert", "model", "checkpoint"), ("build", "checkpoint", "engine")):
        ran = trtkit(verb, tmp_path / source, "-p", profile, "--out", tmp_path / out)
        assert 0 == ran.code, ran.err

    before, after = (read_safetensors(tmp_path / name / "model.safetensors") for name in ("model", "checkpoint"))
    assert before == after
    assert "dtype: fp8" in (tmp_path / "engine" / "llm_args.yaml").read_text()


def test_a_checkpoint_of_ours_is_a_source_like_any_other(tmp_path: Path, profile: Path) -> None:
    """What convert passed through can be passed through again, to the same bytes."""
    write_quantised(tmp_path / "model", "nvfp4")
    for source, out in (("model", "once"), ("once", "twice")):
        ran = trtkit("convert", tmp_path / source, "-p", profile, "--out", tmp_path / out)
        assert 0 == ran.code, ran.err
    assert (tmp_path / "once" / "model.safetensors").read_bytes() == (
        tmp_path / "twice" / "model.safetensors"
    ).read_bytes()


def test_a_profile_for_another_format_is_refused_with_the_line_that_agrees(tmp_path: Path, profile: Path) -> None:
    """Exit 1, nothing written, and the words to write."""
    write_quantised(tmp_path / "model", "fp8")
    profile.write_text(PROFILE + "quantization: {weights: nvfp4}\n")
    ran = trtkit("convert", tmp_path / "model", "-p", profile, "--out", tmp_path / "out")
    assert (1, False) == (ran.code, (tmp_path / "out").exists())
    assert "nvfp4 asked, fp8 held (modelopt: FP8)" in ran.err
    assert "quantization.weights: fp8" in ran.err


@pytest.mark.parametrize("form", ["int4_awq", "w4a8_awq", "int8_sq", "mixed"])
def test_what_modelopt_searched_is_passed_on_and_compared(tmp_path: Path, profile: Path, form: str) -> None:
    """Convert hands codes, scales and factors on, a second time too, and evaluate reads source and result."""
    write_quantised(tmp_path / "model", form, hidden_size=256, intermediate_size=384, head_dim=64)
    for source, out in (("model", "once"), ("once", "twice")):
        ran = trtkit("convert", tmp_path / source, "-p", profile, "--out", tmp_path / out)
        assert 0 == ran.code, ran.err
        weights = [read_safetensors(tmp_path / name / "model.safetensors") for name in (source, out)]
        assert weights[0] == weights[1]
    ran = trtkit("evaluate", tmp_path / "model", tmp_path / "twice", "--tokens", "64", "--json")
    assert (0, 1.0) == (ran.code, ran.json["top1_agreement"])


def by_strategy(strategy: str) -> dict[str, Any]:
    """Return what llm-compressor writes of FP8 with such scales."""
    weights = {"type": "float", "num_bits": 8, "strategy": strategy, "symmetric": True, "dynamic": False}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"config_groups": groups, "format": "float-quantized", "quant_method": "compressed-tensors"}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (by_strategy("tensor"), "compressed-tensors: float8 tensor", "set quantization.weights: fp8 on the original"),
    (by_strategy("channel"), "compressed-tensors: float8 channel", "set quantization.weights: fp8_rowwise on the"),
    (by_strategy("block"), "compressed-tensors: float8 block", "set quantization.weights: fp8_block on the original"),
    (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
        "awq: 4 bits",
        "set quantization.weights: int4_awq on the original; no PyTorch backend reads AutoAWQ files",
    ),
    (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
        "gptq: 4 bits",
        "set quantization.weights: int4_awq on the original",
    ),
    ({"quant_method": "gptq", "bits": 8}, "gptq: 8 bits", "set quantization.weights: int8_wo on the original"),
]


@pytest.mark.parametrize(("section", "named", "way_out"), REFUSED, ids=[named for _, named, _ in REFUSED])
def test_a_method_is_refused_by_name_with_what_to_do_instead(
    tmp_path: Path, profile: Path, section: dict[str, Any], named: str, way_out: str
) -> None:
    """Exit 1 by convert and by plan, nothing written, and the format that comes nearest on the original's weights."""
    write_tiny_model(tmp_path / "model")
    change_config(tmp_path / "model", quantization_config=section)
    ran = trtkit("convert", tmp_path / "model", "-p", profile, "--out", tmp_path / "out")
    assert (1, False) == (ran.code, (tmp_path / "out").exists())
    assert named in ran.err
    assert way_out in " ".join(ran.err.split())
    assert 1 == trtkit("plan", tmp_path / "model", "-p", profile).code


def test_a_method_that_is_not_read_is_refused_by_name(tmp_path: Path, profile: Path) -> None:
    """GPTQ, before a weight is looked at."""
    write_quantised(tmp_path / "model", "fp8")
    (tmp_path / "model" / "hf_quant_config.json").unlink()
    change_config(tmp_path / "model", quantization_config={"quant_method": "gptq", "bits": 4})
    ran = trtkit("convert", tmp_path / "model", "-p", profile, "--out", tmp_path / "out")
    assert 1 == ran.code
    assert "gptq: 4 bits" in ran.err
    assert "int4_awq on the original" in ran.err
