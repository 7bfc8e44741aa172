"""What a DeepSeek checkpoint has that no other does: prediction layers, a choice bias, latent projections."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_safetensors, write_tiny_model
from trtllm_kit.checkpoint.check import check_source
from trtllm_kit.checkpoint.convert import conversion_steps, convert
from trtllm_kit.checkpoint.load import load_reference
from trtllm_kit.checkpoint.quant_config import hf_quant_config
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.errors import TensorError
from trtllm_kit.progress import Silent
from trtllm_kit.spec.load import load_model
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import model_tensors, prediction_tensors

BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a random model with one prediction layer, whose tensors lie in a shard of their own."""
    folder = write_tiny_model(tmp_path_factory.mktemp("source"), "deepseek_v3", num_nextn_predict_layers=1)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    random = np.random.default_rng(5)
    behind = {
        name: random.standard_normal(fact.shape).astype(np.float32)
        for fact in prediction_tensors(load_model(folder))
        for name in fact.names()
    }
    write_safetensors(folder / "model-00002-of-00002.safetensors", behind)
    stored = dict.fromkeys(names_of(load_model(folder)), "model-00001-of-00002.safetensors")
    places = stored | dict.fromkeys(behind, "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def names_of(model: ModelSpec) -> list[str]:
    """Return the tensor names of the model without its prediction layers."""
    return [name for fact in model_tensors(model) for name in fact.names()]


def test_prediction_layers_pass_through_and_are_named_as_excluded(source: Path) -> None:
    """They stay in 16 bit, as in NVIDIA's own checkpoints, whatever becomes of the model."""
    plan = plan_for(source, "fp8")
    behind = [step for step in conversion_steps(source, plan) if step.name.startswith("model.layers.2.")]
    described = hf_quant_config(plan.model, plan.quantization)

    assert {"plain"} == {step.format for step in behind}
    assert described is not None
    assert "model.layers.2*" in described["quantization"]["exclude_modules"]


def test_a_prediction_tensor_of_another_shape_is_refused(source: Path) -> None:
    """What is there must fit the model; what is not there is not missed."""
    weights, model, name = open_weights(source), load_model(source), "model.layers.2.eh_proj.weight"
    check_source(weights, model.model_copy(update={"prediction_layers": 2}))
    weights.tensors[name] = replace(weights.tensors[name], shape=(64, 64))

    with pytest.raises(TensorError, match=f"{name} has shape"):
        check_source(weights, model)


def test_the_choice_bias_keeps_float32_and_the_cache_has_no_scales(source: Path, tmp_path: Path) -> None:
    """Bits of the bias are those of the source; an FP8 cache of latent vectors takes scale 1."""
    convert(source, plan_for(source, "fp8", "fp8"), tmp_path / "out", Silent())
    before, after = open_weights(source), open_weights(tmp_path / "out")

    assert "F32" == after.tensors[BIAS].dtype
    assert before.read(BIAS).tobytes() == after.read(BIAS).tobytes()
    assert [] == [name for name in after.tensors if name.endswith(("k_scale", "v_scale"))]
    cache = load_reference(tmp_path / "out").new_cache().layers[0]
    keys, _ = cache.append(np.full((1, 1, 40), 1.01, np.float32), np.zeros((1, 1, 0), np.float32))
    assert {1.0} == set(keys.ravel().tolist())


def test_the_projections_of_latent_attention_stay_in_16_bit(source: Path) -> None:
    """Only the output projection of attention becomes FP8."""
    steps = conversion_steps(source, plan_for(source, "fp8"))
    attention = {step.name.rpartition("self_attn.")[2] for step in steps if "layers.0.self_attn" in step.name}

    assert {"o_proj.weight_scale", "o_proj.input_scale"} == {name for name in attention if name.endswith("_scale")}
