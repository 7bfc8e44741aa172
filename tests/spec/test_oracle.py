"""Tensor names, shapes and counts against Hugging Face transformers, for every family and variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.load import load_model
from trtllm_kit.spec.tensors import model_tensors, parameters
from trtllm_kit.spec.vision import vision_of

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch and transformers")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch and transformers")
safetensors = pytest.importorskip("safetensors", reason="the oracle needs safetensors")

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
LLAMA4: dict[str, Any] = {"num_local_experts": 4, "intermediate_size_mlp": 40, "head_dim": 8}
GEMMA: dict[str, Any] = {"head_dim": 8}
DEEPSEEK: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Llama", {}),
    ("Llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 16, "tie_word_embeddings": True}),
    ("Mistral", {"head_dim": 16}),
    ("Mixtral", {"num_local_experts": 4}),
    ("Qwen2", {"tie_word_embeddings": True}),
    ("Qwen3", {"attention_bias": True, "head_dim": 8}),
    ("Qwen3Moe", EXPERTS),
    ("Qwen3Moe", EXPERTS | {"mlp_only_layers": [0], "decoder_sparse_step": 2, "tie_word_embeddings": True}),
    ("Gemma2", GEMMA),
    ("Gemma2", GEMMA | {"tie_word_embeddings": False, "attention_bias": True}),
    ("Gemma3", GEMMA),
    ("Phi3", {"pad_token_id": 0, "eos_token_id": 2}),
    ("Phi3", {"pad_token_id": 0, "eos_token_id": 2, "tie_word_embeddings": True, "num_key_value_heads": None}),
    ("DeepseekV3", DEEPSEEK),
    ("DeepseekV3", DEEPSEEK | {"q_lora_rank": None, "first_k_dense_replace": 0, "tie_word_embeddings": True}),
    ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}),
    ("Llama4", LLAMA4),
    ("Llama4", LLAMA4 | {"interleave_moe_layer_step": 2, "attention_bias": True}),
]
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vision_output_dim": 16,
    "image_size": 28,
    "projector_input_dim": 16,
    "projector_output_dim": 16,
}


def written(folder: Path, model: Any) -> dict[str, tuple[int, ...]]:
    """Save a model as the hub has it, and return the shape of every tensor in its file."""
    model.save_pretrained(folder)
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def expected(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor the kit expects, from ``config.json`` alone."""
    return {name: fact.shape for fact in model_tensors(load_model(folder)) for name in fact.names()}


@pytest.mark.parametrize(("family", "changes"), CASES)
def test_names_and_shapes_of_what_transformers_writes(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    """Every tensor of a saved model is expected under its name and in its shape, and no other."""
    config_class = getattr(transformers, f"{family}TextConfig" if family in ("Llama4", "Gemma3") else f"{family}Config")
    model = getattr(transformers, f"{family}ForCausalLM")(config_class(**SHAPE | changes)).to(torch.bfloat16)

    assert written(tmp_path, model) == expected(tmp_path)


def test_the_text_part_of_llama4_with_vision(tmp_path: Path) -> None:
    """Of a wrapped Llama 4 exactly the tensors of the language model are expected."""
    config = transformers.Llama4Config(text_config=SHAPE | LLAMA4, vision_config=VISION)
    model = transformers.Llama4ForConditionalGeneration(config).to(torch.bfloat16)

    tensors = {name: shape for name, shape in written(tmp_path, model).items() if name.startswith("language_model.")}

    assert tensors == expected(tmp_path)


def test_the_text_part_of_gemma3_with_vision(tmp_path: Path) -> None:
    """Of a wrapped Gemma 3 exactly the tensors of the language model are expected; the others are its vision part."""
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes = {"image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(text_config=SHAPE | GEMMA, vision_config=vision | sizes, mm_tokens_per_image=4)
    model = transformers.Gemma3ForConditionalGeneration(config).to(torch.bfloat16)

    tensors = written(tmp_path, model)
    text = {name: shape for name, shape in tensors.items() if name.startswith("language_model.")}

    assert text == expected(tmp_path)
    assert all(name.startswith(vision_of(load_model(tmp_path)).prefixes) for name in tensors.keys() - text.keys())


REAL = (
    "meta-llama--Meta-Llama-3.1-405B",
    "mistralai--Mixtral-8x22B-v0.1",
    "Qwen--Qwen3-0.6B",
    "Qwen--Qwen3-235B-A22B",
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct",
    "deepseek-ai--DeepSeek-V3",
    "openai--gpt-oss-120b",
)


@pytest.mark.parametrize("name", REAL)
def test_counts_of_real_models_without_their_weights(shared: Path, name: str) -> None:
    """The count of a real model is that of transformers, built without memory; vision apart."""
    document = json.loads((shared / "models" / f"{name}_config.json").read_text())
    config = transformers.AutoConfig.for_model(**document)
    with torch.device("meta"):
        model = getattr(transformers, document["architectures"][0])(config)
    part = getattr(model, "language_model", model)

    stored = {id(tensor): tensor.numel() for tensor in part.state_dict(keep_vars=True).values()}  # tied ones once

    assert sum(stored.values()) == parameters(read_model_spec(document, name))


ATTENTION: list[tuple[str, dict[str, Any]]] = [
    ("Mistral", {}),
    ("Mistral", {"sliding_window": None}),
    ("Mixtral", {"sliding_window": 16, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3}),
    ("Qwen3", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1, "head_dim": 8}),
    ("Qwen3", {"sliding_window": 16, "head_dim": 8}),
    ("Gemma2", GEMMA | {"sliding_window": 16}),
    ("Phi3", {"sliding_window": 16, "pad_token_id": 0, "eos_token_id": 2}),
    ("Phi3", {"pad_token_id": 0, "eos_token_id": 2}),
]


@pytest.mark.parametrize(("family", "changes"), ATTENTION)
def test_windows_are_those_of_transformers(family: str, changes: dict[str, Any]) -> None:
    """The window of each layer, from the document as transformers writes it, and from one with the keys left out."""
    config = getattr(transformers, f"{family}Config")(**SHAPE | changes)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    theirs = [getattr(layer.self_attn, "sliding_window", config.sliding_window) for layer in model.model.layers]
    named = {"architectures": [f"{family}ForCausalLM"], "dtype": "float32", "rms_norm_eps": 1e-6}

    for document in (json.loads(config.to_json_string(use_diff=False)) | named, SHAPE | named | changes):
        ours = [layer.attention.window for layer in read_model_spec(document, family).layers]
        assert theirs == ours


def test_rotary_layers_of_llama4_are_those_of_transformers(tmp_path: Path) -> None:
    """Which layers of Llama 4 turn q and k, normalise them, and are chunked."""
    config = transformers.Llama4TextConfig(**SHAPE | LLAMA4 | {"num_hidden_layers": 8})
    model = transformers.Llama4ForCausalLM(config)
    model.save_pretrained(tmp_path)
    attentions = [layer.attention for layer in load_model(tmp_path).layers]

    modules = [layer.self_attn for layer in model.model.layers]
    assert [bool(one.use_rope) for one in modules] == [one.rotary for one in attentions]
    assert [hasattr(one, "qk_norm") for one in modules] == [one.qk_norm == "l2" for one in attentions]
    assert config.layer_types == [f"{one.kind}_attention" for one in attentions]
