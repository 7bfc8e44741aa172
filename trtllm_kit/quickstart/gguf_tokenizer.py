"""Builds a fast tokenizer from the vocabulary, merges and token types of a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtllm_kit.errors import MissingExtra, UnknownArchitecture

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_CONTROL, _USER_DEFINED = 3, 4
"""Token types of the GGUF specification: markers of the model's own, and words added later."""


def write_tokenizer(fields: dict[str, Any], out: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` from GGUF fields.

    Raises ``MissingExtra`` without the tokenizers package and ``UnknownArchitecture`` for another kind of tokenizer
    than byte-level BPE.
    """
    try:
        from tokenizers import AddedToken, Tokenizer, decoders, models
    except ImportError:
        raise MissingExtra(
            "the Python package tokenizers is not installed",
            why="the GGUF file's vocabulary must become a tokenizer.json",
            hint="pip install 'trtllm-kit[rehearsal]'",
        ) from None
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False, byte_fallback=False))
    tokenizer.pre_tokenizer = _pre_tokenizer(fields)
    tokenizer.decoder = decoders.ByteLevel()
    kinds = dict(zip(tokens, fields["tokenizer.ggml.token_type"], strict=True))
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in tokens if kinds[token] == _CONTROL]
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in tokens if kinds[token] == _USER_DEFINED])
    tokenizer.save(str(out / "tokenizer.json"))
    text = json.dumps(_config(fields, tokens), indent=2, ensure_ascii=False) + "\n"
    (out / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _pre_tokenizer(fields: dict[str, Any]) -> PreTokenizer:
    """Return how text is split before merging; ``smollm`` keeps digits apart, then splits as GPT-2 does."""
    from tokenizers import pre_tokenizers

    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "gpt2" and split == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if kind == "gpt2" and split in ("gpt-2", "gpt2"):
        return gpt2
    raise UnknownArchitecture(
        f"the GGUF file has a tokenizer of kind {kind!r} split as {split!r}",
        why="the kit rebuilds byte-level BPE tokenizers split as 'smollm' or 'gpt-2'",
        hint="give the model's Hugging Face folder instead",
    )


def _config(fields: dict[str, Any], tokens: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
    }
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    for name, short in names.items():
        number = fields.get(f"tokenizer.ggml.{short}_token_id")
        if number is not None:
            config[name] = tokens[number]
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    return config
