"""Runs texts through a checkpoint one layer at a time, so that memory holds one layer's weights and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.checkpoint.load import OpenCheckpoint
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import CalibrationError
from trtllm_kit.progress import Progress
from trtllm_kit.reference.layer import build_layer
from trtllm_kit.reference.model import Embedding
from trtllm_kit.reference.numeric import Observe
from trtllm_kit.reference.rope import rotary_tables
from trtllm_kit.spec.model import ModelSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Window = NDArray[np.int64]
"""Token ids of one piece of text, which is run on its own."""


def windows(tokenizer: Tokenizer, text: str, count: int, tokens: int) -> list[Window]:
    """Cut a text into at most ``count`` pieces of ``tokens`` tokens, each begun as the tokenizer begins a prompt.

    A text that is too short gives fewer pieces, and at least one when it has a token at all.
    """
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    start = full[: len(full) - len(plain)] if full[len(full) - len(plain) :] == plain else []
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    step = max(tokens - len(start), 1)
    pieces = [ids[at : at + step] for at in range(0, min(len(ids), count * step), step)]
    if len(pieces) > 1 and len(pieces[-1]) < step:
        pieces.pop()
    return [np.array(start + piece, dtype=np.int64) for piece in pieces]


def require_known(pieces: Sequence[Window], model: ModelSpec) -> None:
    """Raise ``CalibrationError`` when a text has a token that the model's vocabulary does not have."""
    largest = max((int(piece.max()) for piece in pieces if piece.size), default=0)
    if largest >= model.vocab:
        raise CalibrationError(
            f"the tokenizer gives token {largest}, which the model does not have",
            why=f"vocab_size in config.json is {model.vocab}, so its tokens run from 0 to {model.vocab - 1}",
            hint="take tokenizer.json from the model's own repository",
        )


def run_layers(
    opened: OpenCheckpoint, pieces: Sequence[Window], progress: Progress, label: str, observe: Observe | None = None
) -> list[F32]:
    """Return the (tokens, hidden) state of each piece after the last layer; raises ``CalibrationError``."""
    require_known(pieces, opened.model)
    embed = Embedding(opened.model, opened.weights)
    states = [embed(piece) for piece in pieces]
    del embed
    rotary = rotary_tables(opened.model, max(map(len, pieces), default=0))
    progress.start(label, len(opened.model.layers), "layers")
    for number in range(len(opened.model.layers)):
        layer = build_layer(opened.model, number, opened.weights, opened.kv_format)
        states = [layer(state, rotary[number].at(0, len(state)), layer.new_cache(), observe) for state in states]
        progress.advance(1)
    progress.finish()
    return states
