"""How much a conversion lost: two checkpoints of one model over the same text, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtllm_kit.checkpoint.load import OpenCheckpoint, load_tokenizer, open_checkpoint
from trtllm_kit.checkpoint.stream import Window, run_layers, windows
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import CalibrationError
from trtllm_kit.progress import Progress
from trtllm_kit.reference.model import Head
from trtllm_kit.resources import package_file

WINDOW = 256
"""Tokens of one piece of the text."""
MOST_TOKENS = 1024
"""Tokens of a comparison unless told otherwise; enough for two decimals of perplexity on the held text."""


@dataclass(frozen=True)
class Comparison:
    """Checkpoint b seen from checkpoint a."""

    tokens: int
    """Positions compared."""
    logit_cosine: float
    """Mean cosine of the two logit vectors of a position, 1 for equal."""
    lowest_cosine: float
    """The worst position's."""
    top1_agreement: float
    """Share of positions whose most likely next token is the same."""
    perplexity_a: float
    perplexity_b: float


def compare(a: Path, b: Path, text: str, progress: Progress, most_tokens: int = MOST_TOKENS) -> Comparison:
    """Compare two folders over at most ``most_tokens`` tokens of ``text``, cut by the tokenizer of ``a``.

    Raises ``MissingExtra`` without tokenizers, ``CalibrationError`` for a text of less than two tokens, and what
    ``checkpoint.load`` raises.
    """
    pieces = windows(load_tokenizer(a), text, max(most_tokens // WINDOW, 1), min(WINDOW, most_tokens))
    if sum(len(piece) - 1 for piece in pieces) < 1:
        raise CalibrationError(
            "the text is too short to compare on", why="it has less than two tokens", hint="give a longer text"
        )
    return compare_pieces(open_checkpoint(a), open_checkpoint(b), pieces, progress)


def compare_pieces(a: OpenCheckpoint, b: OpenCheckpoint, pieces: Sequence[Window], progress: Progress) -> Comparison:
    """Compare two opened checkpoints over pieces of tokens."""
    states_a = run_layers(a, pieces, progress, "reading the source's answers")
    states_b = run_layers(b, pieces, progress, "reading the checkpoint's answers")
    head_a, head_b = Head(a.model, a.weights), Head(b.model, b.weights)
    rows = [
        _compare_logits(head_a(state_a), head_b(state_b), piece)
        for state_a, state_b, piece in zip(states_a, states_b, pieces, strict=True)
    ]
    cosine, same, loss_a, loss_b = (np.concatenate(column) for column in zip(*rows, strict=True))
    _require_finite(a=loss_a, b=loss_b)
    return Comparison(
        tokens=len(cosine),
        logit_cosine=float(cosine.mean()),
        lowest_cosine=float(cosine.min()),
        top1_agreement=float(same.mean()),
        perplexity_a=float(np.exp(loss_a.mean())),
        perplexity_b=float(np.exp(loss_b.mean())),
    )


def _require_finite(**losses: F32) -> None:
    for name, values in losses.items():
        if not np.isfinite(values).all():
            raise CalibrationError(
                f"checkpoint {name} of the comparison gives logits that are not finite",
                why=f"{int((~np.isfinite(values)).sum())} of {len(values)} positions have no likelihood",
                hint="look at its weights; such a checkpoint answers with noise",
            )


def held_text() -> str:
    """Return the bundled text that calibration never sees."""
    return package_file("checkpoint", "held_text.txt").read_text("utf-8")


def _compare_logits(a: F32, b: F32, piece: Window) -> tuple[F32, F32, F32, F32]:
    """Return cosine and agreement of every position, and both losses of every next token."""
    cosine = np.einsum("ij,ij->i", a, b) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
    same = (a.argmax(axis=-1) == b.argmax(axis=-1)).astype(np.float32)
    return cosine, same, _losses(a, piece), _losses(b, piece)


def _losses(logits: F32, piece: Window) -> F32:
    """Return -log p of each token after the first, nats."""
    seen = logits[:-1]
    top = seen.max(axis=-1)
    norm = top + np.log(np.exp(seen - top[:, None]).sum(axis=-1))
    losses: F32 = norm - seen[np.arange(len(seen)), piece[1:]]
    return losses
