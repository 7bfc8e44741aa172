"""Refuses to compare what has nothing in common: other models, other tokens, a layout that is not read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.checkpoint.load import OpenCheckpoint, load_tokenizer, open_checkpoint
from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE
from trtllm_kit.errors import NotComparable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_RANK_FILE = "rank0.safetensors"
_SOURCE = "compare a checkpoint with the model it was made from"


def open_both(a: Path, b: Path) -> tuple[OpenCheckpoint, OpenCheckpoint]:
    """Open two folders of one model; raises ``NotComparable``, and what ``open_checkpoint`` raises."""
    for folder in (a, b):
        _require_readable(folder)
    source, converted = open_checkpoint(a), open_checkpoint(b)
    differing = {
        name: values
        for name, values in {
            "layers": (len(source.model.layers), len(converted.model.layers)),
            "hidden features": (source.model.hidden, converted.model.hidden),
            "tokens of the vocabulary": (source.model.vocab, converted.model.vocab),
        }.items()
        if values[0] != values[1]
    }
    if differing:
        counts = "; ".join(
            f"{one:,} {name} in the first, {other:,} in the second" for name, (one, other) in differing.items()
        )
        raise NotComparable(f"{a} and {b} are not the same model", why=counts, hint=_SOURCE)
    return source, converted


def shared_tokenizer(a: Path, b: Path) -> Tokenizer:
    """Return the tokenizer of two folders; raises ``NotComparable`` when they turn text into other tokens."""
    ours, theirs = load_tokenizer(a), load_tokenizer(b)
    if ours.to_str() != theirs.to_str():
        raise NotComparable(
            f"{a} and {b} have different tokenizers",
            why="their tokenizer.json files differ, so one number can be two words and no figure would mean anything",
            hint=f"{_SOURCE}, or put the tokenizer.json of the one into the other",
        )
    return ours


def _require_readable(folder: Path) -> None:
    if (folder / _RANK_FILE).exists() and not (folder / CONVERSION_FILE).exists():
        raise NotComparable(
            f"{folder} is a TensorRT-LLM checkpoint of another maker",
            why=f"it holds {_RANK_FILE} and no {CONVERSION_FILE}, which says how its ranks were cut",
            hint="convert the model with trtkit convert and compare that",
        )
