"""How much a conversion lost: two checkpoints of one model over the same text, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtllm_kit.checkpoint.load import OpenCheckpoint, load_tokenizer, open_checkpoint
from trtllm_kit.checkpoint.stream import Window, run_layers, windows
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import CalibrationError, QualityGateFailed
from trtllm_kit.progress import Progress
from trtllm_kit.reference.model import Head
from trtllm_kit.resources import package_file

WINDOW = 256
"""Tokens of one piece of the text."""
MOST_TOKENS = 1024
"""Tokens of a comparison unless told otherwise; enough for two decimals of perplexity on the held text."""


@dataclass(frozen=True)
class Comparison:
    """A converted checkpoint (b) seen from its source (a)."""

    tokens: int
    """Positions compared."""
    logit_cosine: float
    """Mean cosine of the two logit vectors of a position, 1 for equal."""
    lowest_cosine: float
    """The worst position's."""
    top1_agreement: float
    """Share of positions whose most likely next token is the same."""
    perplexity_source: float
    perplexity_converted: float


def compare(a: Path, b: Path, text: str, progress: Progress, most_tokens: int = MOST_TOKENS) -> Comparison:
    """Compare two folders over at most ``most_tokens`` tokens of ``text``, cut by the tokenizer of ``a``.

    Raises ``MissingExtra`` without tokenizers, ``CalibrationError`` for a text of less than two tokens or one with
    tokens that ``a`` does not have, and what ``compare_pieces`` and ``checkpoint.load`` raise.
    """
    pieces = windows(load_tokenizer(a), text, max(most_tokens // WINDOW, 1), min(WINDOW, most_tokens))
    if sum(len(piece) - 1 for piece in pieces) < 1:
        raise CalibrationError(
            "the text is too short to compare on", why="it has less than two tokens", hint="give a longer text"
        )
    return compare_pieces(open_checkpoint(a), open_checkpoint(b), pieces, progress)


def compare_pieces(a: OpenCheckpoint, b: OpenCheckpoint, pieces: Sequence[Window], progress: Progress) -> Comparison:
    """Compare two opened checkpoints over pieces of tokens.

    Raises ``CalibrationError`` when the source gives nothing to compare with, that is logits that are not finite or
    all zero, and ``QualityGateFailed`` when the logits of ``b`` are not finite.
    """
    with np.errstate(all="ignore"):  # what is not finite is told below, by name
        cosine, same, loss_a, loss_b, silent = _figures(a, b, pieces, progress)
    _require_answers(loss_a, silent)
    _require_finite(loss_b)
    with np.errstate(over="ignore"):
        perplexities = [float(np.exp(loss.mean(dtype=np.float64))) for loss in (loss_a, loss_b)]
    return Comparison(
        tokens=len(cosine),
        logit_cosine=float(cosine.mean()),
        lowest_cosine=float(cosine.min()),
        top1_agreement=float(same.mean()),
        perplexity_source=perplexities[0],
        perplexity_converted=perplexities[1],
    )


def _figures(a: OpenCheckpoint, b: OpenCheckpoint, pieces: Sequence[Window], progress: Progress) -> list[F32]:
    """Run both, and return the columns of ``_compare_logits`` over all pieces."""
    states_a = run_layers(a, pieces, progress, "reading the source's answers")
    states_b = run_layers(b, pieces, progress, "reading the checkpoint's answers")
    head_a, head_b = Head(a.model, a.weights), Head(b.model, b.weights)
    rows = [
        _compare_logits(head_a(state_a), head_b(state_b), piece)
        for state_a, state_b, piece in zip(states_a, states_b, pieces, strict=True)
    ]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _require_answers(losses: F32, silent: F32) -> None:
    lost = int((~np.isfinite(losses)).sum())
    if lost:
        raise CalibrationError(
            "the source of the comparison gives logits that are not finite",
            why=f"{lost} of {len(losses)} positions have no likelihood",
            hint="look at its weights; such a model answers with noise",
        )
    if silent.all():
        raise CalibrationError(
            "the source of the comparison gives logits that are all zero",
            why=f"at each of {len(silent)} positions every token is as likely as any other",
            hint="download the model again: its weight files look as if they had been made and never filled",
        )


def _require_finite(losses: F32) -> None:
    lost = int((~np.isfinite(losses)).sum())
    if lost:
        raise QualityGateFailed(
            "the converted checkpoint gives logits that are not finite",
            why=f"{lost} of {len(losses)} positions have no likelihood, and all of its source have one",
            hint="give calibration.text a text of your domain, or set quantization.weights: bf16",
        )


def held_text() -> str:
    """Return the bundled text that calibration never sees."""
    return package_file("checkpoint", "held_text.txt").read_text("utf-8")


def _compare_logits(a: F32, b: F32, piece: Window) -> tuple[F32, F32, F32, F32, F32]:
    """Return cosine and agreement of every position, both losses of every next token, and where ``a`` is zero."""
    same = (a.argmax(axis=-1) == b.argmax(axis=-1)).astype(np.float32)
    return cosines(a, b), same, _losses(a, piece), _losses(b, piece), (~a.any(axis=-1)).astype(np.float32)


def cosines(a: F32, b: F32) -> F32:
    """Return the cosine of each pair of rows; 1 for two rows of zeros, which are equal, and 0 for one of zeros."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    equal = ~a.any(axis=-1) & ~b.any(axis=-1)
    found: F32 = np.where(norms == 0, equal, np.einsum("ij,ij->i", a, b) / np.where(norms == 0, 1, norms))
    return found.astype(np.float32)


def _losses(logits: F32, piece: Window) -> F32:
    """Return -log p of each token after the first, nats."""
    seen = logits[:-1]
    top = seen.max(axis=-1)
    norm = top + np.log(np.exp(seen - top[:, None]).sum(axis=-1))
    losses: F32 = norm - seen[np.arange(len(seen)), piece[1:]]
    return losses
