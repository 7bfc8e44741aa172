"""A Llama of random weights with a tokenizer, made where torch computes: ``python -m benchmarks.gpu.random_llama``.

Weights are normal, as transformers initialises them: deviation 0.02 at a hidden size of 4,096, and the same gain at
another. Two things differ, without which 32 random layers multiply every rounding until FP8 and BF16 are two models:
the projections that write into the residual stream are smaller by ``sqrt(2 layers)``, as GPT-2 initialises them, and
the embedding has deviation 1, so that a layer adds to a state as it does in a trained model.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from trtllm_kit.checkpoint.text import read as read_text

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
"""The shape of Llama 3.1 8B."""
TINY = LLAMA_8B | {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 2048,
}
"""The same with four narrow layers, for a rehearsal on a CPU."""
SHARDS = 4
_TOKENS = 1024
_DEVIATION, _WIDTH = 0.02, 4096


def make(folder: Path, config: dict[str, Any], device: str, seed: int = 0) -> int:
    """Write the model and return the bytes of its weights; the same device and seed give the same model."""
    folder.mkdir(parents=True)
    _write_json(folder / "config.json", config)
    write_tokenizer(folder)
    random = torch.Generator(device).manual_seed(seed)
    layers, names = config["num_hidden_layers"], {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        tensors = dict(_shard(config, range(shard * layers // SHARDS, (shard + 1) * layers // SHARDS), random))
        save_file(tensors, folder / file, {"format": "pt"})
        names |= dict.fromkeys(tensors, file)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": names})
    return size


def _shard(config: dict[str, Any], layers: range, random: torch.Generator) -> Iterator[tuple[str, torch.Tensor]]:
    hidden, width, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    query, kept = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    usual = _DEVIATION * math.sqrt(_WIDTH / hidden)
    small = usual / math.sqrt(2 * config["num_hidden_layers"])

    def matrix(rows: int, columns: int, deviation: float) -> torch.Tensor:
        values = torch.empty(rows, columns, dtype=torch.bfloat16, device=random.device)
        return values.normal_(0, deviation, generator=random).cpu()

    if layers.start == 0:
        yield "model.embed_tokens.weight", matrix(vocab, hidden, 1.0)
    for number in layers:
        base = f"model.layers.{number}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{base}{name}.weight", torch.ones(hidden, dtype=torch.bfloat16)
        for name, rows in (("q_proj", query), ("k_proj", kept), ("v_proj", kept)):
            yield f"{base}self_attn.{name}.weight", matrix(rows, hidden, usual)
        yield f"{base}self_attn.o_proj.weight", matrix(hidden, query, small)
        for name in ("gate_proj", "up_proj"):
            yield f"{base}mlp.{name}.weight", matrix(width, hidden, usual)
        yield f"{base}mlp.down_proj.weight", matrix(hidden, width, small)
    if layers.stop == config["num_hidden_layers"]:
        yield "model.norm.weight", torch.ones(hidden, dtype=torch.bfloat16)
        yield "lm_head.weight", matrix(vocab, hidden, usual)


def write_tokenizer(folder: Path) -> None:
    """Train a byte-level BPE of 1,024 tokens on the bundled calibration text, and write it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_TOKENS,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([read_text(None).raw], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    _write_json(folder / "tokenizer_config.json", words)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def main() -> int:
    """Make the model that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(json.dumps({"bytes": make(asked.folder, TINY if asked.tiny else LLAMA_8B, device)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
