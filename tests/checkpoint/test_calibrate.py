"""Calibration: what is measured, and who shares it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.calibrate import Calibrated, calibrate
from trtllm_kit.checkpoint.job import prepare
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.stream import run_layers, windows
from trtllm_kit.checkpoint.text import read
from trtllm_kit.errors import CalibrationError
from trtllm_kit.progress import Silent

ATTENTION = "model.layers.1.self_attn."


def measured(source: Path, **settings: int) -> Calibrated:
    """Calibrate a folder for FP8 weights and an FP8 cache."""
    job = prepare(source, plan_for(source, "fp8", "fp8", **settings), 1 << 30)
    assert job.texts is not None
    scales = [name for step in job.steps for name in step.measured]
    assert job.texts.calibration is not None
    return calibrate(job.opened(), job.texts.calibration, scales, Silent())


def test_amax_is_the_largest_value_a_plain_forward_pass_shows(tmp_path: Path) -> None:
    """Running layer by layer measures what the whole model's observer sees."""
    source = write_tiny_model(tmp_path)
    largest: dict[str, float] = {}

    def observe(name: str, values: np.ndarray) -> None:
        largest[name] = max(largest.get(name, 0.0), float(np.abs(values).max()))

    model = load_reference(source)
    for piece in windows(load_tokenizer(source), read(None).raw, 3, 40):
        model.forward(piece, model.new_cache(), observe=observe)
    amax = measured(source, samples=3, tokens_per_sample=40).amax
    assert largest["model.layers.1.mlp.down_proj"] == pytest.approx(amax["model.layers.1.mlp.down_proj.input_scale"])
    assert largest[f"{ATTENTION}k_cache"] == pytest.approx(amax[f"{ATTENTION}k_proj.k_scale"])
    assert largest[f"{ATTENTION}v_cache"] == pytest.approx(amax[f"{ATTENTION}v_proj.v_scale"])


def test_projections_of_one_input_share_its_amax(tmp_path: Path) -> None:
    """q, k and v have one, gate and up have one, o and down have their own."""
    amax = measured(write_tiny_model(tmp_path)).amax
    assert 1 == len({amax[f"{ATTENTION}{name}.input_scale"] for name in ("q_proj", "k_proj", "v_proj")})
    mlp = [amax[f"model.layers.1.mlp.{name}.input_scale"] for name in ("gate_proj", "up_proj", "down_proj")]
    assert mlp[0] == mlp[1] != mlp[2]


def test_experts_share_what_the_router_sees(tmp_path: Path) -> None:
    """Gate and up of all experts have one amax, and every down_proj has one."""
    amax = measured(write_tiny_model(tmp_path, "qwen3_moe")).amax
    base = "model.layers.0.mlp.experts."
    assert 1 == len({amax[f"{base}{at}.{name}.input_scale"] for at in range(4) for name in ("gate_proj", "up_proj")})
    assert all(amax[f"{base}{at}.down_proj.input_scale"] > 0 for at in range(4))


def test_an_expert_without_tokens_takes_the_largest_of_its_layer(tmp_path: Path) -> None:
    """With 64 experts and two short texts some are never visited, and they are counted."""
    source = write_tiny_model(tmp_path, "qwen3_moe", num_experts=64, num_experts_per_tok=1)
    calibrated = measured(source, samples=1, tokens_per_sample=8)
    downs = [calibrated.amax[f"model.layers.0.mlp.experts.{at}.down_proj.input_scale"] for at in range(64)]
    assert downs.count(max(downs)) > 1
    assert calibrated.experts_without_tokens > 0


def test_memory_is_one_layer_and_results_are_the_whole_model_s(tmp_path: Path) -> None:
    """The streamed states become the logits of the loaded model."""
    source = write_tiny_model(tmp_path)
    job = prepare(source, plan_for(source, "fp8"), 1 << 30)
    assert job.texts is not None
    piece = job.texts.held[0]
    model = load_reference(source)
    states = run_layers(job.opened(), [piece], Silent(), "test")
    np.testing.assert_allclose(model.forward(piece, model.new_cache()), model._head(states[0]), atol=1e-4)


def test_windows_cut_a_text_into_whole_pieces(tmp_path: Path) -> None:
    """The last piece that is too short is left out, unless it is the only one."""
    tokenizer = load_tokenizer(write_tiny_model(tmp_path))
    assert [4, 4] == [len(piece) for piece in windows(tokenizer, "abcdefghij", 5, 4)]
    assert [4] == [len(piece) for piece in windows(tokenizer, "abcdefghij", 1, 4)]
    assert [3] == [len(piece) for piece in windows(tokenizer, "abc", 5, 4)]
    assert [] == windows(tokenizer, "", 5, 4)


def test_windows_begin_as_the_tokenizer_begins_a_prompt(tmp_path: Path) -> None:
    """A tokenizer that adds a first token does so in every piece, within its length."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = load_tokenizer(write_tiny_model(tmp_path))
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    pieces = windows(tokenizer, "abcdefghij", 3, 4)
    assert [4, 4, 4] == [len(piece) for piece in pieces]
    assert [1, 1, 1] == [piece[0] for piece in pieces]


@pytest.mark.parametrize("bits", [b"\x7f\x7f", b"\xc0\x7f"], ids=["overflow", "NaN"])
def test_an_activation_that_is_not_finite_is_a_calibration_error(tmp_path: Path, bits: bytes) -> None:
    """The message names the first module that met infinity or NaN; neither is lost in a maximum."""
    source = write_tiny_model(tmp_path)
    path = source / "model.safetensors"
    tensor = open_weights(source).tensors["model.layers.0.mlp.up_proj.weight"]
    data = bytearray(path.read_bytes())
    data[tensor.begin : tensor.begin + tensor.nbytes] = bits * (tensor.nbytes // 2)
    path.write_bytes(data)
    with pytest.raises(CalibrationError, match=r"layers\.0\.mlp\.down_proj"):
        measured(source)
