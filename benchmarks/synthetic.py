"""Llama-shaped BF16 checkpoints of any size: random weights, or headers over files with nothing in them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
HIDDEN, INTERMEDIATE, VOCAB, HEADS, KV_HEADS, HEAD = 4096, 14336, 32000, 32, 8, 128
LAYER_BYTES = 2 * HIDDEN * (2 * HEADS * HEAD + 2 * KV_HEADS * HEAD + 3 * INTERMEDIATE + 2)
SHARD_BYTES = 1_500_000_000
_BLOCK_BYTES = 1 << 25


def random_model(folder: Path, gigabytes: float) -> int:
    """Write a model of about that size with a tiny tokenizer; returns the bytes of its weights."""
    return random_layers(folder, max(round((gigabytes * 1e9 - 4 * HIDDEN * VOCAB) / LAYER_BYTES), 1), VOCAB)


def random_layers(folder: Path, layers: int, vocab: int) -> int:
    """Write a model of so many layers of an 8B model with a tiny tokenizer; returns the bytes of its weights."""
    from tests.support.tiny_model import write_tiny_model

    sizes = {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "vocab_size": vocab, "head_dim": HEAD}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_hidden_layers": layers}
    write_tiny_model(folder)
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text()) | sizes | heads
    (folder / "config.json").write_text(json.dumps(config))
    values = np.random.default_rng(0).standard_normal(_BLOCK_BYTES // 2, dtype=np.float32) * 0.02
    block = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return _write(folder, _shapes(config), block)


def headers_of_405b(folder: Path) -> int:
    """Write the files of Llama 3.1 405B as headers and holes; returns the bytes they claim."""
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "golden" / "models" / "llama-3.1-405b.json", folder / "config.json")
    return _write(folder, _shapes(json.loads((folder / "config.json").read_text())), None)


def _shapes(config: dict[str, int]) -> dict[str, tuple[int, ...]]:
    hidden, wide, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}."
        shapes |= {f"{layer}{norm}_layernorm.weight": (hidden,) for norm in ("input", "post_attention")}
        shapes |= {f"{layer}self_attn.q_proj.weight": (queries, hidden)}
        shapes |= {f"{layer}self_attn.{name}_proj.weight": (keys, hidden) for name in "kv"}
        shapes |= {f"{layer}self_attn.o_proj.weight": (hidden, queries)}
        shapes |= {f"{layer}mlp.{name}_proj.weight": (wide, hidden) for name in ("gate", "up")}
        shapes |= {f"{layer}mlp.down_proj.weight": (hidden, wide)}
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}


def _write(folder: Path, shapes: dict[str, tuple[int, ...]], block: bytes | None) -> int:
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    room = SHARD_BYTES
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        if shards[-1] and size > room:
            shards.append({})
            room = SHARD_BYTES
        shards[-1][name] = shape
        room -= size
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        index |= dict.fromkeys(shard, file)
        _write_shard(folder / file, shard, block)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return sum(2 * math.prod(shape) for shape in shapes.values())


def _write_shard(path: Path, shard: dict[str, tuple[int, ...]], block: bytes | None) -> None:
    header, at = {}, 0
    for name, shape in shard.items():
        end = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        if block is None:
            file.truncate(8 + len(text) + at)
            return
        for begin in range(0, at, _BLOCK_BYTES):
            file.write(block[: min(_BLOCK_BYTES, at - begin)])
