"""How much a conversion lost: two checkpoints of one model over the same text, position by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trtllm_kit.checkpoint.load import OpenCheckpoint
from trtllm_kit.checkpoint.loss import LayerLoss, Pair, run_pair, weakest
from trtllm_kit.checkpoint.measures import F64, cosines, divergences, log_softmax, mean, percentile, perplexity
from trtllm_kit.checkpoint.same_model import open_both, shared_tokenizer
from trtllm_kit.checkpoint.stream import Batch, Window, batches
from trtllm_kit.checkpoint.text import Text
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import CalibrationError, QualityGateFailed
from trtllm_kit.progress import Progress
from trtllm_kit.reference.model import Head

WINDOW = 256
"""Tokens of one piece of the text."""
MOST_TOKENS = 1024
"""Tokens of a comparison unless told otherwise; enough for two decimals of perplexity on the held text."""
_LOGITS = 1 << 24
"""Logits that are held at once of each checkpoint, 64 MiB: of a vocabulary of 128k those of 130 positions."""
_ROWS = 8
"""Positions whose probabilities are held at once, in float64: 8 MiB for a vocabulary of 128k."""
_NAMED = 3
"""Layers that a short report names."""


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
    kl_mean: float
    """Mean of KL(source || converted) over positions, nats."""
    kl_p99: float
    """What it does not exceed at 99 of 100 positions."""
    perplexity_source: float
    perplexity_converted: float
    layers: tuple[LayerLoss, ...] = ()
    """What each layer lost; empty for a report that was read back from a manifest."""

    @property
    def perplexity_ratio(self) -> float:
        """Converted over source."""
        return self.perplexity_converted / self.perplexity_source

    def facts(self) -> dict[str, Any]:
        """Return the report for a manifest: every figure, and of the layers those that lose most."""
        figures = asdict(self)
        figures.pop("layers")
        return figures | {"weakest_layers": self.weakest_layers}

    @property
    def weakest_layers(self) -> list[dict[str, Any]]:
        """The few layers that lose most by themselves, as every report names them: number and error."""
        return [{"layer": one.layer, "error": one.error} for one in weakest(self.layers, _NAMED)]


def report_of(facts: dict[str, Any]) -> Comparison:
    """Return the report that ``Comparison.facts`` made a manifest's entry of, without its layers."""
    return Comparison(**{name: value for name, value in facts.items() if name != "weakest_layers"})


def compare(a: Path, b: Path, text: Text, progress: Progress, most_tokens: int = MOST_TOKENS) -> Comparison:
    """Compare two folders over at most ``most_tokens`` tokens of ``text``, cut by the tokenizer of ``a``.

    Raises ``MissingExtra`` without tokenizers, ``NotComparable`` for folders whose models or tokens differ,
    ``CalibrationError`` for a text of less than two tokens or one with tokens that ``a`` does not have, and what
    ``compare_pieces`` and ``checkpoint.load`` raise.
    """
    source, converted = open_both(a, b)
    pieces = text.first(shared_tokenizer(a, b), most_tokens, WINDOW)
    if sum(len(piece) - 1 for piece in pieces) < 1:
        raise CalibrationError(
            "the text is too short to compare on", why="it has less than two tokens", hint="give a longer text"
        )
    return compare_pieces(source, converted, pieces, progress)


def compare_pieces(a: OpenCheckpoint, b: OpenCheckpoint, pieces: Sequence[Window], progress: Progress) -> Comparison:
    """Compare two opened checkpoints over pieces of tokens.

    Raises ``CalibrationError`` when the source gives nothing to compare with, that is logits that are not finite or
    all zero, and ``QualityGateFailed`` when the logits of ``b`` are not finite.
    """
    with np.errstate(all="ignore"):  # what is not finite is told below, by name
        pair = run_pair(a, b, pieces, progress)
        heads = Head(a.model, a.weights, streamed=True), Head(b.model, b.weights, streamed=True)
        parts = _answers(heads, pair, pieces, progress)
    rows = _Rows(*map(np.concatenate, zip(*parts, strict=True)))
    _require_answers(rows)
    _require_finite(rows.losses_b, pair.layers)
    return Comparison(
        tokens=len(rows.cosine),
        logit_cosine=mean(rows.cosine),
        lowest_cosine=float(rows.cosine.min()),
        top1_agreement=mean(rows.same_top),
        kl_mean=mean(rows.divergence),
        kl_p99=percentile(rows.divergence, 0.99),
        perplexity_source=perplexity(rows.losses_a),
        perplexity_converted=perplexity(rows.losses_b),
        layers=pair.layers,
    )


class _Rows(NamedTuple):
    """Figures of every position: (positions,) each, of the losses one less for each piece."""

    cosine: F32
    same_top: F64
    divergence: F64
    losses_a: F64
    losses_b: F64
    silent: F64
    """1 where every logit of a is zero."""


def _answers(heads: tuple[Head, Head], pair: Pair, pieces: Sequence[Window], progress: Progress) -> list[_Rows]:
    """Return the figures of all pieces; each pass through the heads makes the logits of as many positions as fit."""
    progress.start("comparing answers", sum(map(len, pieces)), "tokens")
    parts: list[_Rows] = []
    for batch in batches(pieces, max(_LOGITS // heads[0].vocab, 1)):
        parts += _batch_rows(heads, pair, pieces, batch)
        progress.advance(sum(map(len, batch)))
    progress.finish()
    return parts


def _batch_rows(heads: tuple[Head, Head], pair: Pair, pieces: Sequence[Window], batch: Batch) -> Iterator[_Rows]:
    """Yield the figures of a batch; its logits are let go before those of the next are made."""
    a, b = heads[0](pair.a.together(batch)), heads[1](pair.b.together(batch))
    end = 0
    for stretch in batch:
        begin, end = end, end + len(stretch)
        follows = pieces[stretch.piece][stretch.begin + 1 : stretch.end + 1]
        yield from _rows((a[begin:end], b[begin:end]), follows)


def _rows(logits: tuple[F32, F32], follows: Window) -> Iterator[_Rows]:
    """Yield the figures of some positions, a few at a time, so that few probabilities are held at once.

    ``follows`` are the tokens that came, one less than there are positions where the piece ends.
    """
    for begin in range(0, len(logits[0]), _ROWS):
        a, b = (one[begin : begin + _ROWS] for one in logits)
        log_a, log_b = log_softmax(a), log_softmax(b)
        following = follows[begin : begin + len(a)]
        at = np.arange(len(following)), following
        yield _Rows(
            cosine=cosines(a, b),
            same_top=(a.argmax(axis=-1) == b.argmax(axis=-1)).astype(np.float64),
            divergence=divergences(log_a, log_b),
            losses_a=-log_a[at],
            losses_b=-log_b[at],
            silent=(~a.any(axis=-1)).astype(np.float64),
        )


def _require_answers(rows: _Rows) -> None:
    lost = int((~np.isfinite(rows.losses_a)).sum())
    if lost:
        raise CalibrationError(
            "the source of the comparison gives logits that are not finite",
            why=f"{lost} of {len(rows.losses_a)} positions have no likelihood",
            hint="look at its weights; such a model answers with noise",
        )
    if rows.silent.all():
        raise CalibrationError(
            "the source of the comparison gives logits that are all zero",
            why=f"at each of {len(rows.silent)} positions every token is as likely as any other",
            hint="download the model again: its weight files look as if they had been made and never filled",
        )


def _require_finite(losses: F64, layers: Sequence[LayerLoss]) -> None:
    lost = int((~np.isfinite(losses)).sum())
    if not lost:
        return
    first = next((f"; layer {one.layer} is the first that gives none" for one in layers if np.isnan(one.error)), "")
    raise QualityGateFailed(
        "the converted checkpoint gives logits that are not finite",
        why=f"{lost} of {len(losses)} positions have no likelihood, and all of its source have one{first}",
        hint="give calibration.text a text of your domain, or set quantization.weights: bf16",
    )
