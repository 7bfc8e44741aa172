"""Tensor names, shapes and counts of planned families against Hugging Face transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import MODELS
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.tensors import model_tensors, parameters

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch and transformers")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch and transformers")
safetensors = pytest.importorskip("safetensors", reason="the oracle needs safetensors")

SMALL = ("qwen3.5", "qwen3-vl", "gemma-4", "nemotron-3", "nemotron-h", "mimo-v2", "minimax-m2")
FUSED = ("qwen3.5-moe", "qwen3-vl-moe")
BESIDE = ("model.visual.", "model.vision_tower.", "model.embed_vision.")
"""What the names of a vision part begin with."""


def built(document: dict[str, Any], device: str) -> Any:
    """Build the model of a ``config.json`` in transformers."""
    config = transformers.CONFIG_MAPPING[document["model_type"]].from_dict(document)
    with torch.device(device):
        return getattr(transformers, document["architectures"][0])(config)


def expected(name: str, document: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor the kit expects."""
    facts = model_tensors(read_model_spec(document, name))
    return {one: fact.shape for fact in facts for one in fact.names()}


def text_part(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Leave out vision."""
    return {name: shape for name, shape in shapes.items() if not name.startswith(BESIDE)}


@pytest.mark.parametrize("name", SMALL)
def test_names_and_shapes_of_what_transformers_writes(tmp_path: Path, name: str) -> None:
    """Every tensor of the text part of a saved model is expected under its name and in its shape, and no other.

    Nemotron's own files have ``backbone.embeddings``, which transformers reads beside the name that it writes.
    """
    document = json.loads((MODELS / f"{name}.json").read_text("utf-8"))
    built(document, "cpu").to(torch.bfloat16).save_pretrained(tmp_path)
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        written = {one: tuple(file.get_slice(one).get_shape()) for one in file.keys()}  # noqa: SIM118

    named = {one.replace("backbone.embedding.", "backbone.embeddings."): shape for one, shape in written.items()}
    assert text_part(named) == expected(name, document)


@pytest.mark.parametrize("name", FUSED)
def test_names_and_shapes_of_fused_experts(name: str) -> None:
    """Qwen's fused experts are what transformers holds; Qwen3-VL's files have them transposed, which it undoes."""
    document = json.loads((MODELS / f"{name}.json").read_text("utf-8"))
    shapes = text_part({one: tuple(tensor.shape) for one, tensor in built(document, "cpu").state_dict().items()})
    if name == "qwen3-vl-moe":
        turned = {one: (shape[0], shape[2], shape[1]) for one, shape in shapes.items() if len(shape) == 3}
        shapes |= turned

    assert shapes == expected(name, document)


REAL = (
    "Qwen--Qwen3.5-397B-A17B",
    "nvidia--Qwen3.6-27B-NVFP4",
    "nvidia--Qwen3.6-35B-A3B-NVFP4",
    "Qwen--Qwen3-VL-235B-A22B-Instruct",
    "Qwen--Qwen3-VL-4B-Instruct",
    "google--gemma-4-26B-A4B",
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "nvidia--Nemotron-H-56B-Base-8K",
    "XiaomiMiMo--MiMo-V2-Flash",
    "nvidia--MiniMax-M2.5-NVFP4",
)


@pytest.mark.parametrize("name", REAL)
def test_counts_of_real_models_without_their_weights(shared: Path, name: str) -> None:
    """The count of a real model's text part is that of transformers, built without memory, to the last parameter."""
    document = json.loads((shared / "models" / f"{name}_config.json").read_text())
    for key in ("quantization_config", "auto_map"):
        document.pop(key, None)
    model = built(document, "meta")

    tensors = {one: tensor for one, tensor in model.state_dict(keep_vars=True).items() if not one.startswith(BESIDE)}
    stored = {id(tensor): tensor.numel() for tensor in tensors.values()}  # tied ones once

    assert sum(stored.values()) == parameters(read_model_spec(document, name))
