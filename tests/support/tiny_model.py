"""Tiny random Hugging Face folders of every family, with a tokenizer: the smallest real input of the road.

Written with numpy alone, without the product's own writer or tensor list, so that tests compare two sources.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.tiny_experts import DEEPSEEK_V3, GPT_OSS, deepseek_experts, gpt_oss_experts, latent_attention

FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "llama4", "gemma2", "gemma3", "phi3", "deepseek_v3",
    "gpt_oss",
)  # fmt: skip

GEMMAS = ("gemma2", "gemma3")

_SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 272,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": True,
}
_FAMILY: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "use_sliding_window": False,
        "sliding_window": 128,
        "max_window_layers": 2,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 2,
    },
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "use_sliding_window": False,
        "sliding_window": None,
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "sliding_window": 128,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 8.0,
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "sliding_window": 128,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 24,
    },
    "deepseek_v3": DEEPSEEK_V3,
    "gpt_oss": GPT_OSS,
    "phi3": {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "original_max_position_embeddings": 512,
        "pad_token_id": 0,
        "sliding_window": None,
    },
    "llama4": {
        "model_type": "llama4_text",
        "attention_bias": False,
        "intermediate_size": 32,
        "intermediate_size_mlp": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "no_rope_layer_interval": 4,
        "attention_chunk_size": 128,
        "use_qk_norm": True,
    },
}


def write_tiny_model(
    folder: Path, family: str = "llama", *, seed: int = 0, dtype: str = "bfloat16", shards: int = 1, **overrides: Any
) -> Path:
    """Write a random model of ``family`` into ``folder`` (made when missing) and return the folder.

    ``overrides`` change ``config.json`` keys, and with them the shapes: ``write_tiny_model(p, num_key_value_heads=4)``.
    ``dtype`` is ``bfloat16``, ``float16`` or ``float32``; ``shards`` above one adds a ``model.safetensors.index.json``.
    The same arguments always give the same bytes. 266 of the 272 rows of the vocabulary have a token.
    """
    text = _BASE | _FAMILY[family] | {"torch_dtype": dtype} | overrides
    config = text
    if family == "llama4":
        config = {
            "architectures": ["Llama4ForConditionalGeneration"],
            "model_type": "llama4",
            "text_config": text,
            "torch_dtype": dtype,
            "tie_word_embeddings": text["tie_word_embeddings"],
        }
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "do_sample": False})
    write_tiny_tokenizer(folder)
    tensors = dict(_random_tensors(family, text, np.random.default_rng(seed)))
    _write_weights(folder, tensors, dtype, shards)
    return folder


def write_tiny_tokenizer(folder: Path) -> None:
    """Write ``tokenizer.json`` (byte-level BPE: five special tokens, 256 bytes, five merges) and its config."""
    letters = _byte_letters()
    words = ["Ġt", "he", "Ġthe", "in", "an"]
    vocabulary = {token: number for number, token in enumerate([*_SPECIAL_TOKENS, *letters, *words])}
    added = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": True}
        for number, token in enumerate(_SPECIAL_TOKENS)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [["Ġ", "t"], ["h", "e"], ["Ġt", "he"], ["i", "n"], ["a", "n"]],
        },
    }
    template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    _write_json(folder / "tokenizer.json", document)
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "chat_template": template,
            "model_max_length": 512,
        },
    )


def _byte_letters() -> list[str]:
    """Return the printable stand-in of every byte, in byte order, as byte-level BPE writes them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def _random_tensors(
    family: str, config: dict[str, Any], random: np.random.Generator
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield every tensor with values that keep activations near one: weights of deviation 1/sqrt(fan in)."""
    root = "language_model." if family == "llama4" else ""
    hidden, vocab = config["hidden_size"], config["vocab_size"]

    def matrix(*shape: int, fan_in: int | None = None) -> NDArray[np.float32]:
        return (random.standard_normal(shape) / np.sqrt(fan_in or shape[-1])).astype(np.float32)

    def norm(size: int) -> NDArray[np.float32]:
        middle = 0.0 if family in GEMMAS else 1.0
        return (middle + 0.1 * random.standard_normal(size)).astype(np.float32)

    yield f"{root}model.embed_tokens.weight", matrix(vocab, hidden, fan_in=4)
    for number in range(config["num_hidden_layers"]):
        base = f"{root}model.layers.{number}."
        yield base + "input_layernorm.weight", norm(hidden)
        yield from ((base + name, tensor) for name, tensor in _attention(family, config, matrix, norm))
        yield base + "post_attention_layernorm.weight", norm(hidden)
        if family in GEMMAS:
            yield base + "pre_feedforward_layernorm.weight", norm(hidden)
            yield base + "post_feedforward_layernorm.weight", norm(hidden)
        yield from ((base + name, tensor) for name, tensor in _feed_forward(family, config, number, matrix))
    yield f"{root}model.norm.weight", norm(hidden)
    if not config["tie_word_embeddings"]:
        yield f"{root}lm_head.weight", matrix(vocab, hidden)


def _attention(family: str, config: dict[str, Any], matrix: Any, norm: Any) -> Iterator[tuple[str, Any]]:
    if family == "deepseek_v3":
        yield from latent_attention(config, matrix, norm)
        return
    if family == "gpt_oss":
        yield "self_attn.sinks", matrix(config["num_attention_heads"], fan_in=1)
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    query, kept = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    qkv_bias = config.get("attention_bias", family == "qwen2")
    separate = (("q_proj", query), ("k_proj", kept), ("v_proj", kept))
    for name, rows in (("qkv_proj", query + 2 * kept),) if family == "phi3" else separate:
        yield f"self_attn.{name}.weight", matrix(rows, hidden)
        if qkv_bias:
            yield f"self_attn.{name}.bias", matrix(rows, fan_in=4)
    yield "self_attn.o_proj.weight", matrix(hidden, query)
    if config.get("attention_bias", False):
        yield "self_attn.o_proj.bias", matrix(hidden, fan_in=4)
    if family in ("qwen3", "qwen3_moe", "gemma3"):
        yield "self_attn.q_norm.weight", norm(head_dim)
        yield "self_attn.k_norm.weight", norm(head_dim)


def _feed_forward(family: str, config: dict[str, Any], layer: int, matrix: Any) -> Iterator[tuple[str, Any]]:
    hidden = config["hidden_size"]
    if family == "mixtral":
        yield from _experts("block_sparse_moe.", ("w1", "w3", "w2"), config["intermediate_size"], config, matrix)
    elif family == "qwen3_moe" and layer not in config["mlp_only_layers"]:
        names = ("gate_proj", "up_proj", "down_proj")
        yield from _experts("mlp.", names, config["moe_intermediate_size"], config, matrix)
    elif family == "llama4" and (layer + 1) % config["interleave_moe_layer_step"] == 0:
        experts, width = config["num_local_experts"], config["intermediate_size"]
        yield "feed_forward.router.weight", matrix(experts, hidden)
        yield "feed_forward.experts.gate_up_proj", matrix(experts, hidden, 2 * width, fan_in=hidden)
        yield "feed_forward.experts.down_proj", matrix(experts, width, hidden, fan_in=width)
        yield from _dense("feed_forward.shared_expert.", width, config, matrix)
    elif family == "llama4":
        yield from _dense("feed_forward.", config["intermediate_size_mlp"], config, matrix)
    elif family == "deepseek_v3" and layer >= config["first_k_dense_replace"]:
        yield from deepseek_experts(config, matrix)
    elif family == "gpt_oss":
        yield from gpt_oss_experts(config, matrix)
    elif family == "phi3":
        width = config["intermediate_size"]
        yield "mlp.gate_up_proj.weight", matrix(2 * width, hidden)
        yield "mlp.down_proj.weight", matrix(hidden, width)
    else:
        yield from _dense("mlp.", config["intermediate_size"], config, matrix)


def _dense(prefix: str, width: int, config: dict[str, Any], matrix: Any) -> Iterator[tuple[str, Any]]:
    hidden = config["hidden_size"]
    for name, shape in (("gate_proj", (width, hidden)), ("up_proj", (width, hidden)), ("down_proj", (hidden, width))):
        yield f"{prefix}{name}.weight", matrix(*shape)
        if config.get("mlp_bias", False):
            yield f"{prefix}{name}.bias", matrix(shape[0], fan_in=4)


def _experts(
    prefix: str, names: tuple[str, str, str], width: int, config: dict[str, Any], matrix: Any
) -> Iterator[tuple[str, Any]]:
    hidden = config["hidden_size"]
    experts = config.get("num_experts", config.get("num_local_experts"))
    yield f"{prefix}gate.weight", matrix(experts, hidden)
    for expert in range(experts):
        for name, shape in zip(names, ((width, hidden), (width, hidden), (hidden, width)), strict=True):
            yield f"{prefix}experts.{expert}.{name}.weight", matrix(*shape)


def _write_weights(folder: Path, tensors: dict[str, NDArray[np.float32]], dtype: str, shards: int) -> None:
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return
    names = list(tensors)
    files = {name: f"model-{number * shards // len(names) + 1:05d}-of-{shards:05d}.safetensors"
             for number, name in enumerate(names)}  # fmt: skip
    for file in sorted(set(files.values())):
        write_safetensors(folder / file, {name: tensors[name] for name in names if files[name] == file}, dtype)
    size = {"bfloat16": 2, "float16": 2, "float32": 4}[dtype]
    total = sum(tensor.size for tensor in tensors.values()) * size
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": files})


def write_safetensors(path: Path, tensors: dict[str, NDArray[np.float32]], dtype: str = "bfloat16") -> None:
    """Write float32 arrays as one safetensors file, rounded to ``dtype``."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    offset = 0
    for name, tensor in tensors.items():
        own = "float32" if name.endswith("e_score_correction_bias") else dtype  # as DeepSeek publishes it
        blob = _encode(tensor, own)
        code = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[own]
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def _encode(tensor: NDArray[np.float32], dtype: str) -> bytes:
    if dtype != "bfloat16":
        return tensor.astype(dtype).tobytes()
    bits = np.ascontiguousarray(tensor).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
