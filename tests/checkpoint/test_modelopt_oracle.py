"""The FP8 checkpoint against NVIDIA ModelOpt's own export of the same model, calibrated on the same tokens."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.plans import plan_as_stored, plan_for
from tests.support.tiny_model import write_tiny_model, write_tiny_tokenizer
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_tokenizer
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.text import read as read_text
from trtllm_kit.progress import Silent

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch, transformers and modelopt")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch, transformers and modelopt")
pytest.importorskip("modelopt", reason="the oracle needs torch, transformers and modelopt")

FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "llama4", "gemma2", "gemma3", "phi3", "deepseek_v3",
    "gpt_oss",
)  # fmt: skip
LATENT_INPUTS = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
"""What NVIDIA's own recipe for DeepSeek leaves in 16 bit, and the general one does not; it has no KV scales either."""
CALIBRATED = ("input_scale", ".k_scale", ".v_scale")


@pytest.fixture(scope="module", params=FAMILIES)
def exports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Convert one random model with the kit and with ModelOpt; give both folders."""
    root = tmp_path_factory.mktemp(request.param)
    source = llama4_text_model(root / "source") if request.param == "llama4" else tiny(root / "source", request.param)
    latent = request.param == "deepseek_v3"
    plan = plan_for(source, "fp8", "bf16" if latent else "fp8", samples=8, tokens_per_sample=64)
    convert(source, plan, root / "ours", Silent())
    pieces = read_text(None).samples(load_tokenizer(source), 8, 64)
    modelopt_export(source, pieces, root / "theirs", latent=latent)
    return root / "ours", root / "theirs"


def test_tensor_names_shapes_and_dtypes_are_those_of_modelopt(exports: tuple[Path, Path]) -> None:
    """Both folders hold the same tensors."""
    ours, theirs = (open_weights(folder) for folder in exports)
    assert shape_of(theirs) == shape_of(ours)


def test_weight_bytes_and_weight_scales_are_those_of_modelopt(exports: tuple[Path, Path]) -> None:
    """Every byte that does not depend on calibration is the same."""
    ours, theirs = (open_weights(folder) for folder in exports)
    fixed = [name for name in theirs.tensors if not name.endswith(CALIBRATED)]
    different = [name for name in fixed if not np.array_equal(theirs.read(name), ours.read(name))]
    assert [] == different


def test_calibrated_scales_agree_with_modelopt(exports: tuple[Path, Path]) -> None:
    """Scales measured in float32 lie within the error of ModelOpt's bfloat16 activations.

    In a mixture of experts that error can send a token to another expert, and ModelOpt shows every token to every
    expert, so what lies behind the first router is compared loosely.
    """
    ours, theirs = (open_weights(folder) for folder in exports)
    routed = any(".experts." in name for name in theirs.tensors)
    for name in (name for name in theirs.tensors if name.endswith(CALIBRATED)):
        exact = not routed or ".layers.0.self_attn." in name
        low, high = (0.97, 1.03) if exact else (0.4, 1.25)
        assert low < float(ours.read(name)) / float(theirs.read(name)) < high, name


def test_quantisation_files_differ_from_modelopt_in_the_producer_alone(exports: tuple[Path, Path]) -> None:
    """hf_quant_config.json and config.json's quantization_config have ModelOpt's keys and values."""
    ours, theirs = exports
    assert without_producer(theirs / "hf_quant_config.json") == without_producer(ours / "hf_quant_config.json")
    assert (
        without_producer(theirs / "config.json")["quantization_config"]
        == without_producer(ours / "config.json")["quantization_config"]
    )


def test_modelopts_own_export_is_passed_through_as_it_is(exports: tuple[Path, Path], tmp_path: Path) -> None:
    """Every tensor and both configurations of ModelOpt's folder are handed on, whatever the family."""
    _, theirs = exports
    convert(theirs, plan_as_stored(theirs), tmp_path / "out", Silent())
    before, after = open_weights(theirs), open_weights(tmp_path / "out")
    assert shape_of(before) == shape_of(after)
    assert [] == [name for name in before.tensors if not np.array_equal(before.read(name), after.read(name))]
    for name in ("config.json", "hf_quant_config.json"):
        assert (theirs / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def tiny(folder: Path, family: str) -> Path:
    """Write a random model."""
    return write_tiny_model(folder, family, seed=5)


def llama4_text_model(folder: Path) -> Path:
    """Write a random text-only Llama 4, whose architecture ModelOpt exports without a vision tower."""
    torch.manual_seed(5)
    config = transformers.Llama4TextConfig(
        architectures=["Llama4ForCausalLM"],
        hidden_size=64,
        intermediate_size=32,
        pad_token_id=0,
        intermediate_size_mlp=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=272,
        max_position_embeddings=512,
        num_local_experts=4,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=128,
    )
    model = transformers.Llama4ForCausalLM(config).to(torch.bfloat16)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    write_tiny_tokenizer(folder)
    return folder


def modelopt_export(source: Path, pieces: list[Any], out: Path, *, latent: bool) -> None:
    """Quantise and export with ModelOpt: FP8 weights and FP8 KV cache, but as NVIDIA does it for latent attention."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()

    def run(model: Any) -> None:
        for piece in pieces:
            model(torch.tensor(piece)[None])

    recipe = copy.deepcopy(mtq.FP8_DEFAULT_CFG)
    if latent:
        recipe["quant_cfg"] += [{"quantizer_name": f"*{name}*", "enable": False} for name in LATENT_INPUTS]
    else:
        recipe = mtq.update_quant_cfg_with_kv_cache_quant(recipe, mtq.FP8_KV_CFG["quant_cfg"])
    model = mtq.quantize(model, recipe, run)
    export_hf_checkpoint(model, dtype=torch.bfloat16, export_dir=out)


def shape_of(weights: WeightFolder) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of every tensor."""
    return {name: (tensor.dtype, tensor.shape) for name, tensor in weights.tensors.items()}


def without_producer(path: Path) -> dict[str, Any]:
    """Read a JSON file and drop who made it, at every level that says so."""
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    document.pop("producer", None)
    document.get("quantization_config", {}).pop("producer", None)
    return document
