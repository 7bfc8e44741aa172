"""The quality gate: a conversion that lost too much is refused before it is published.

The floors tell a broken conversion from a lossy one. FP8 of a sound model stays far above them (SmolLM2 135M, where
quantisation costs more than in larger models: cosine 0.993, same top token 0.896, perplexity 1.03 times), while
clipped activations, scales of another model or weights flushed to zero fall far below.
"""

from __future__ import annotations

import math
from dataclasses import asdict

from trtllm_kit.checkpoint.evaluate import Comparison
from trtllm_kit.errors import QualityGateFailed

LEAST_COSINE = 0.9
"""Of mean logit cosine: below, the error is nearly half as large as the logits themselves."""
LEAST_TOP1_AGREEMENT = 0.5
"""Of greedy answers: below, every other token is another one."""
MOST_PERPLEXITY_RATIO = 1.5
"""Converted over source: above, the token that comes next has lost a third of its probability, in the mean."""

_HINT = (
    "give calibration.text a text of your domain and raise calibration.samples; else keep the worst modules in 16 bit "
    "with quantization.exclude, or set quantization.weights: bf16"
)


def require_quality(report: Comparison) -> None:
    """Raise ``QualityGateFailed`` with the figures when one of them is not finite or beyond its floor."""
    ratio = report.perplexity_converted / report.perplexity_source
    figures = {
        f"mean logit cosine {report.logit_cosine:.4f} (at least {LEAST_COSINE})": report.logit_cosine >= LEAST_COSINE,
        f"top-1 agreement {report.top1_agreement:.4f} (at least {LEAST_TOP1_AGREEMENT})": (
            report.top1_agreement >= LEAST_TOP1_AGREEMENT
        ),
        f"perplexity {report.perplexity_converted:.6g} of {report.perplexity_source:.6g}, "
        f"{ratio:.4g} times (at most {MOST_PERPLEXITY_RATIO})": ratio <= MOST_PERPLEXITY_RATIO,
    }
    finite = all(math.isfinite(figure) for figure in (*asdict(report).values(), ratio))
    if finite and all(figures.values()):
        return
    failed = [words for words, good in figures.items() if not good] or ["not every figure is finite"]
    passed = [words for words, good in figures.items() if good]
    raise QualityGateFailed(
        f"the conversion lost too much: {'; '.join(failed)}",
        why=f"measured on {report.tokens} tokens that calibration never saw"
        + (f"; within bounds: {'; '.join(passed)}" if passed else ""),
        hint=_HINT,
    )
