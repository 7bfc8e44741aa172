"""A comparison as rows for reading and as one object for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from trtllm_kit.checkpoint.evaluate import Comparison
from trtllm_kit.checkpoint.gate import Judged, gate_failure, judge
from trtllm_kit.checkpoint.loss import LayerLoss
from trtllm_kit.spec.quality import Quality

FIGURE_COLUMNS = ("figure", "value", "what it is")
LAYER_COLUMNS = ("layer", "own error", "attention", "feed-forward", "state error", "state cosine")


def report_document(report: Comparison, asked: Quality) -> dict[str, Any]:
    """Return every figure, every layer, the limits and the verdict; JSON values only."""
    failure = gate_failure(report, asked)
    document = asdict(report) | {
        "perplexity_ratio": report.perplexity_ratio,
        "layers": [asdict(layer) for layer in report.layers],
        "weakest_layers": report.weakest_layers,
        "gate": [asdict(one) for one in judge(report, asked)],
        "verdict": "yes" if failure is None else "no",
    }
    if failure is not None:
        document["refusal"] = {"what": failure.what, "why": failure.why, "try": failure.hint}
    return document


def figure_rows(report: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and meaning of each figure."""
    yield "tokens", f"{report.tokens:,}", "positions compared"
    yield "perplexity of the source", f"{report.perplexity_source:.6g}", "exp of the mean loss"
    yield "perplexity of the checkpoint", f"{report.perplexity_converted:.6g}", "exp of the mean loss"
    yield "ratio", f"{report.perplexity_ratio:.5f}", "checkpoint over source; 1 for nothing lost"
    yield "top-1 agreement", f"{report.top1_agreement:.2%}", "positions with the same most likely next token"
    yield "KL divergence, mean", f"{report.kl_mean:.5g} nats", "of the next token's odds; 0 for nothing lost"
    yield "KL divergence, p99", f"{report.kl_p99:.5g} nats", "not exceeded at 99 of 100 positions"
    yield "logit cosine, mean", f"{report.logit_cosine:.6f}", "1 for the same direction"
    yield "logit cosine, lowest", f"{report.lowest_cosine:.6f}", "the worst position's"


def layer_row(layer: LayerLoss) -> tuple[str, ...]:
    """Return the cells of one layer, errors in percent."""
    errors = (layer.error, layer.attention_error, layer.feed_forward_error, layer.state_error)
    return (str(layer.layer), *(f"{error:.3%}" for error in errors), f"{layer.state_cosine:.6f}")


def verdict_line(judged: tuple[Judged, ...]) -> str:
    """Say in one line whether every limit holds."""
    return f"every limit holds: {'; '.join(one.words for one in judged)}"
