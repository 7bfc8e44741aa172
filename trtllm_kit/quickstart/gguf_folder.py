"""Turns a GGUF file of a Llama-shaped model into a BF16 Hugging Face folder with a fast tokenizer.

GGUF keeps the rows of query and key projections in the order llama.cpp rotates them; they are put back into
Hugging Face's order. Quantised blocks are expanded to float32 by the gguf package and rounded to BF16.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.checkpoint.writer import write_safetensors
from trtllm_kit.dtypes import F32, U16, encode_bf16
from trtllm_kit.errors import MissingExtra, UnknownArchitecture, WeightFileError, storage_error
from trtllm_kit.quickstart.gguf_tokenizer import write_tokenizer

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def write_hf_folder(gguf: Path, out: Path) -> Path:
    """Write ``config.json``, weights and tokenizer of ``gguf`` into ``out`` (made when missing); return ``out``.

    Raises ``MissingExtra`` without the gguf or tokenizers package, ``WeightFileError`` for a file that is not sound
    GGUF, ``UnknownArchitecture`` for a model or tokenizer of another kind, ``StorageError`` when a write fails.
    """
    reader = _open(gguf)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields.get("general.architecture") != "llama":
        raise UnknownArchitecture(
            f"{gguf} holds a model of architecture {fields.get('general.architecture')!r}",
            why="the kit turns GGUF files of architecture 'llama' into Hugging Face folders",
            hint="give the model's Hugging Face folder instead",
        )
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = _config(fields, tied="output.weight" not in tensors)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_json(out / "config.json", config)
        generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
        _write_json(out / "generation_config.json", generation)
        write_tokenizer(fields, out)
        _write_weights(tensors, config, out / "model.safetensors")
    except OSError as error:
        raise storage_error(error, "writing the model folder") from None
    return out


def _open(path: Path) -> GGUFReader:
    try:
        from gguf import GGUFReader
    except ImportError:
        raise MissingExtra(
            "the Python package gguf is not installed",
            why="the weights of the small model are in GGUF blocks",
            hint="pip install 'trtllm-kit[rehearsal]'",
        ) from None
    try:
        return GGUFReader(path)
    except OSError as error:
        raise storage_error(error, "reading the GGUF file") from None
    except (ValueError, IndexError, KeyError) as error:
        raise WeightFileError(
            f"{path} is not a sound GGUF file", why=str(error), hint="download that file again"
        ) from None


def _config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    heads = fields["llama.attention.head_count"]
    hidden = fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "head_dim": fields.get("llama.rope.dimension_count", hidden // heads),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": _shortest(fields["llama.attention.layer_norm_rms_epsilon"]),
        "rope_scaling": None,
        "rope_theta": _shortest(fields.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
    }


def _shortest(value: float) -> float:
    """Return the shortest decimal that is the same float32: 1e-05 rather than 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _write_weights(tensors: dict[str, ReaderTensor], config: dict[str, Any], path: Path) -> None:
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    steps = [
        TensorStep(_hf_name(tensor.name), "BF16", tuple(int(size) for size in tensor.shape[::-1]))
        for tensor in tensors.values()
    ]

    def pieces() -> Iterator[U16]:
        for name, tensor in tensors.items():
            values, rotated = _values(tensor), heads.get(name.split(".")[-2])
            yield encode_bf16(values if rotated is None else unpermute(values, rotated))

    write_safetensors(path, steps, pieces())


def unpermute(rows: F32, heads: int) -> F32:
    """Put the (heads x head_dim, in) rows of a rotated projection from llama.cpp's order into Hugging Face's.

    llama.cpp rotates neighbours, so it interleaves the two halves of each head; this parts them again.
    """
    out_features, in_features = rows.shape
    paired = rows.reshape(heads, out_features // heads // 2, 2, in_features)
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(rows.shape)


def _values(tensor: ReaderTensor) -> F32:
    from gguf import dequantize

    values: F32 = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    return values.reshape(tuple(int(size) for size in tensor.shape[::-1]))


def _hf_name(name: str) -> str:
    layer = _LAYER_NAME.fullmatch(name)
    if layer is not None and layer[2] in _IN_LAYER:
        return f"model.layers.{layer[1]}.{_IN_LAYER[layer[2]]}.weight"
    outer = name.removesuffix(".weight")
    if outer in _OUTER:
        return f"{_OUTER[outer]}.weight"
    raise UnknownArchitecture(
        f"the GGUF file holds a tensor {name}",
        why="a plain Llama has none of that name, so the model is another one",
        hint="give the model's Hugging Face folder instead",
    )


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
