"""NVIDIA ModelOpt itself, out of process: its formats read back number by number, and its FP8 beside the kit's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.fake_worker import by_modelopt
from tests.checkpoint.plans import plan_as_stored, plan_for
from tests.checkpoint.ranks import read_file
from tests.support.quantised import read_safetensors
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.evaluate import compare
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.checkpoint.text import held_text
from trtllm_kit.dtypes import F32
from trtllm_kit.progress import Silent
from trtllm_kit.spec.profile_formats import PartFormat

pytestmark = pytest.mark.oracle
pytest.importorskip("torch", reason="the oracle needs torch, transformers and modelopt")
pytest.importorskip("transformers", reason="the oracle needs torch, transformers and modelopt")
pytest.importorskip("modelopt", reason="the oracle needs torch, transformers and modelopt")

WIDE = {"hidden_size": 256, "intermediate_size": 384, "head_dim": 64}
FORMATS: dict[PartFormat, str] = {"int4_awq": "W4A16_AWQ", "w4a8_awq": "W4A8_AWQ", "int8_sq": "W8A8_SQ_PER_CHANNEL"}
NORMS = {
    "q_proj": "input_layernorm", "k_proj": "input_layernorm", "v_proj": "input_layernorm",
    "gate_proj": "post_attention_layernorm", "up_proj": "post_attention_layernorm",
}  # fmt: skip
BF16_STEP = 2.0**-8
ROUNDINGS = 6
"""BF16 roundings on the way: the factor, the division by it, both once more where q, k, v share one, and the norm's."""


class Numbers:
    """The tensors of a file as float32; packed codes as they lie."""

    def __init__(self, path: Path) -> None:
        """Read them all."""
        self._stored = read_file(path)

    def __contains__(self, name: str) -> bool:
        """Whether it is there."""
        return name in self._stored

    def __getitem__(self, name: str) -> F32:
        """Return one."""
        dtype, raw = self._stored[name]
        return (raw.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else raw.astype(np.float32)

    def codes(self, name: str) -> F32:
        """Return signed codes: two in a byte of U8, the even row in its lower half."""
        dtype, raw = self._stored[name]
        if dtype == "I8":
            return raw.view(np.int8).astype(np.float32)
        halves = np.stack([raw & 0xF, raw >> 4], axis=1).reshape(2 * raw.shape[0], raw.shape[1]).astype(np.int16)
        return np.where(halves > 7, halves - 16, halves).astype(np.float32)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("weights", FORMATS)
def test_every_weight_is_the_source_within_the_bound_of_its_format(
    weights: PartFormat, family: str, tmp_path: Path
) -> None:
    """Code times scale times factor times what the norm lost lies within half a step and the BF16 roundings."""
    source = write_tiny_model(tmp_path / "source", family, seed=7, **WIDE)
    plan = by_modelopt(plan_for(source, weights, samples=8, tokens_per_sample=64), sys.executable)
    made = convert(source, plan, tmp_path / "out", Silent())
    described = json.loads((tmp_path / "out" / "hf_quant_config.json").read_text())
    assert FORMATS[weights] == described["quantization"]["quant_algo"]
    assert made.report is not None
    before, after = Numbers(source / "model.safetensors"), Numbers(tmp_path / "out" / "model.safetensors")
    beyond = {}
    for layer in range(2):
        for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):  # fmt: skip
            module = f"model.layers.{layer}.{part}"
            factor = factor_of(before, after, layer, part)
            step = after[f"{module}.weight_scale"].reshape(len(before[f"{module}.weight"]), -1)
            step = step.repeat(len(factor) // step.shape[1], axis=1)
            wanted = before[f"{module}.weight"]
            error = np.abs(after.codes(f"{module}.weight") * step * factor - wanted)
            bound = 0.5 * step * factor + ROUNDINGS * BF16_STEP * np.abs(wanted)
            beyond[module] = float((error / bound).max())
    assert {} == {module: ratio for module, ratio in beyond.items() if not ratio <= 1.0}


@pytest.mark.parametrize("weights", FORMATS)
def test_what_modelopt_searched_passes_unchanged_as_a_source(weights: PartFormat, tmp_path: Path) -> None:
    """Its own bytes are a sound source: codes, scales and factors come out as they went in, and read alike."""
    source = write_tiny_model(tmp_path / "source", seed=7, **WIDE)
    plan = by_modelopt(plan_for(source, weights, samples=2, tokens_per_sample=64), sys.executable)
    convert(source, plan, tmp_path / "once", Silent())
    convert(tmp_path / "once", plan_as_stored(tmp_path / "once"), tmp_path / "twice", Silent())
    once, twice = (read_safetensors(tmp_path / name / "model.safetensors") for name in ("once", "twice"))
    assert once == twice
    assert any(name.endswith("pre_quant_scale") for name in twice)
    report = compare(tmp_path / "once", tmp_path / "twice", held_text(), Silent(), 64)
    assert (1.0, 0.0) == (report.top1_agreement, report.kl_mean)


@pytest.mark.parametrize("weights", ["int8_sq", pytest.param("fp8", marks=pytest.mark.slow)])
def test_the_experts_of_mixtral_are_quantised_too(weights: PartFormat, tmp_path: Path) -> None:
    """ModelOpt finds them, though transformers names their block otherwise; every weight comes near the source's."""
    source = write_tiny_model(tmp_path / "source", "mixtral", seed=7, **WIDE)
    plan = plan_for(source, weights, samples=8, tokens_per_sample=64)
    made = convert(source, by_modelopt(plan, sys.executable), tmp_path / "out", Silent())
    opened = open_checkpoint(tmp_path / "out").weights
    names = [
        f"model.layers.1.block_sparse_moe.experts.{number}.w{part}.weight" for number in range(4) for part in "123"
    ]
    assert {weights} == {opened.number_format(name) for name in names}
    assert made.report is not None
    assert 0.98 < made.report.logit_cosine < 1


def factor_of(before: Numbers, after: Numbers, layer: int, part: str) -> F32:
    """Return what an input is multiplied by on its way: by the module's own factor, and by what its norm took over."""
    module = f"model.layers.{layer}.{part}"
    own = after[f"{module}.pre_quant_scale"] if f"{module}.pre_quant_scale" in after else np.float32(1.0)
    norm = NORMS.get(part.rpartition(".")[2])
    if norm is None:
        return np.broadcast_to(own, before[f"{module}.weight"].shape[1:]).copy()
    name = f"model.layers.{layer}.{norm}.weight"
    return own * after[name] / before[name]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_modelopt_and_the_kit_calibrate_alike(family: str, tmp_path: Path) -> None:
    """FP8 with an FP8 cache: weights and their scales are equal, what was measured agrees."""
    source = write_tiny_model(tmp_path / "source", family, seed=7, **WIDE)
    plan = plan_for(source, "fp8", "fp8", samples=8, tokens_per_sample=64)
    convert(source, plan, tmp_path / "ours", Silent())
    convert(source, by_modelopt(plan, sys.executable), tmp_path / "theirs", Silent())
    ours, theirs = (read_file(tmp_path / name / "model.safetensors") for name in ("ours", "theirs"))
    assert {name: dtype for name, (dtype, _) in ours.items()} == {name: dtype for name, (dtype, _) in theirs.items()}
    measured = [name for name in ours if name.endswith(("input_scale", "k_scale", "v_scale"))]
    for name in ours.keys() - set(measured):
        np.testing.assert_array_equal(ours[name][1].ravel(), theirs[name][1].ravel(), name)
    ratios = [float(ours[name][1].ravel()[0] / theirs[name][1].ravel()[0]) for name in measured]
    assert 0.01 > max(abs(ratio - 1) for ratio in ratios)
