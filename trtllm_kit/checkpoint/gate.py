"""The quality gate: a conversion that lost more than was allowed is refused before it is published.

What is allowed is the operator's word (``quality`` of the profile, ``--gate``), and never more than the floors, which
tell a broken conversion from a lossy one. FP8 of a sound model stays far above them (SmolLM2 135M, where
quantisation costs more than in larger models: cosine 0.993, same top token 0.896, perplexity 1.03 times), while
clipped activations, scales of another model or weights flushed to zero fall far below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from trtllm_kit.checkpoint.evaluate import Comparison
from trtllm_kit.checkpoint.loss import weakest
from trtllm_kit.errors import QualityGateFailed
from trtllm_kit.spec.quality import Quality

LEAST_COSINE = 0.9
"""Of mean logit cosine: below, the error is nearly half as large as the logits themselves."""
LEAST_TOP1_AGREEMENT = 0.5
"""Of greedy answers: below, every other token is another one."""
MOST_PERPLEXITY_RATIO = 1.5
"""Converted over source: above, the token that comes next has lost a third of its probability, in the mean."""

_NAMED = 3


@dataclass(frozen=True)
class Judged:
    """One figure of a report beside its limit."""

    key: str
    """The key of ``quality`` that sets the limit."""
    figure: float
    limit: float
    holds: bool
    words: str
    """Figure and limit for reading, e.g. ``top-1 agreement 0.4990 (at least 0.5)``."""


def judge(report: Comparison, asked: Quality) -> tuple[Judged, ...]:
    """Hold every figure that has a limit against it: the asked one, or the floor where that is stricter."""
    return tuple(_judged(report, asked))


def _judged(report: Comparison, asked: Quality) -> Iterator[Judged]:
    cosine, agreement, ratio = report.logit_cosine, report.top1_agreement, report.perplexity_ratio
    least = max(LEAST_COSINE, asked.logit_cosine or 0.0)
    words = f"mean logit cosine {_beside(cosine, least)} (at least {least:g})"
    yield Judged("logit_cosine", cosine, least, cosine >= least, words)
    least = max(LEAST_TOP1_AGREEMENT, asked.top1_agreement or 0.0)
    words = f"top-1 agreement {_beside(agreement, least)} (at least {least:g})"
    yield Judged("top1_agreement", agreement, least, agreement >= least, words)
    most = MOST_PERPLEXITY_RATIO if asked.perplexity is None else min(MOST_PERPLEXITY_RATIO, 1.0 + asked.perplexity)
    times = f"{report.perplexity_converted:.6g} of {report.perplexity_source:.6g}, {_beside(ratio, most)} times"
    yield Judged("perplexity", ratio, most, ratio <= most, f"perplexity {times} (at most {most:g})")
    if asked.kl_divergence is not None:
        most = asked.kl_divergence
        words = f"mean KL divergence {report.kl_mean:.4g} nats (at most {most:g})"
        yield Judged("kl_divergence", report.kl_mean, most, report.kl_mean <= most, words)


def _beside(figure: float, limit: float) -> str:
    """Print a figure with four decimals, or as many as tell it from its limit."""
    digits = next((count for count in (4, 6, 8) if round(figure, count) != round(limit, count)), 4)
    return f"{figure:.{digits}f}"


def require_quality(report: Comparison, asked: Quality | None = None) -> None:
    """Raise ``QualityGateFailed`` with the figures when one of them is not finite or beyond its limit."""
    failure = gate_failure(report, asked or Quality())
    if failure is not None:
        raise failure


def gate_failure(report: Comparison, asked: Quality) -> QualityGateFailed | None:
    """Return the refusal of a report with its figures, the layers to blame and what to try; None for a good one."""
    judged = judge(report, asked)
    figures = asdict(report)
    figures.pop("layers")
    finite = all(math.isfinite(figure) for figure in (*figures.values(), report.perplexity_ratio))
    if finite and all(one.holds for one in judged):
        return None
    failed = [one.words for one in judged if not one.holds] or ["not every figure is finite"]
    passed = [one.words for one in judged if one.holds]
    named = weakest(report.layers, _NAMED)
    blame = ", ".join(f"{one.layer} (error {one.error:.2%})" for one in named)
    return QualityGateFailed(
        f"the conversion lost too much: {'; '.join(failed)}",
        why=f"measured on {report.tokens:,} tokens"
        + (f"; within bounds: {'; '.join(passed)}" if passed else "")
        + (f"; layers that lose most: {blame}" if blame else ""),
        hint=_hint([one.layer for one in named]),
    )


def _hint(layers: list[int]) -> str:
    patterns = ", ".join(f"'*.layers.{number}.*'" for number in sorted(layers))
    shown = f": [lm_head, {patterns}]" if patterns else ""
    return (
        f"keep the worst layers in 16 bit with quantization.exclude{shown}, or set quantization.weights: bf16; "
        "scales that were measured (fp8, nvfp4) fit better with calibration.text of your domain and more samples"
    )
