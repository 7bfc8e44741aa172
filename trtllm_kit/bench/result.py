"""A run as one document: what was asked, what was measured, every request. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trtllm_kit.bench.figures import SHARES, Figures, confidence
from trtllm_kit.bench.histogram import Histogram, read_histogram
from trtllm_kit.bench.lag import Lag
from trtllm_kit.bench.record import Record

KIND, VERSION = "trtkit-bench", 1
RATES = ("output_tokens_per_second", "requests_per_second", "user_tokens_per_second", "goodput")


@dataclass(frozen=True, slots=True)
class Worth:
    """What turns tokens into money."""

    gpus: int | None = None
    price: float | None = None
    """Of one GPU an hour, any currency."""

    def of(self, tokens_per_second: float) -> dict[str, float]:
        """Return tokens a second of each GPU, and the price of a million of them, as far as they are known."""
        found: dict[str, float] = {}
        if self.gpus:
            found["output_tokens_per_second_per_gpu"] = tokens_per_second / self.gpus
            if self.price is not None and tokens_per_second:
                found["cost_per_million_output_tokens"] = self.gpus * self.price / 3600 / tokens_per_second * 1e6
        return found


def document_of(
    asked: Mapping[str, Any],
    runs: Sequence[Figures],
    total: Figures,
    lag: Lag,
    records: Sequence[Record],
    worth: Worth,
) -> dict[str, Any]:
    """Return the document of a run; ``runs`` are its repeats, ``total`` all of them together."""
    return {
        "kind": KIND,
        "version": VERSION,
        "asked": dict(asked),
        "figures": figures_document(total) | worth.of(total.output_tokens_per_second),
        "repeats": _repeats(runs),
        "client": asdict(lag) | {"bottleneck": lag.bottleneck},
        "histograms": {name: histogram.document() for name, histogram in total.histograms.items()},
        "requests": [_request(record) for record in records],
    }


def figures_document(figures: Figures) -> dict[str, Any]:
    """Return the figures by name: counts, rates, and each latency in seconds at its percentiles."""
    return {
        "asked": figures.asked,
        "answered": figures.answered,
        "failures": figures.failures,
        "why": list(figures.why),
        "seconds": figures.seconds,
        "prompt_tokens": figures.prompt_tokens,
        "output_tokens": figures.output_tokens,
        "tokens_counted_by": figures.counted,
        "pieces": figures.pieces,
        **{name: value for name in RATES if (value := getattr(figures, name)) is not None},
        **({} if figures.kept_share is None else {"kept_share": figures.kept_share}),
        **_nth(figures),
        "latencies": {name: latency(one) for name, one in figures.histograms.items() if one.count},
    }


def latency(histogram: Histogram) -> dict[str, float]:
    """Return a latency's mean, percentiles and most, seconds."""
    shown = {name_of(share): histogram.at(share) for share in SHARES}
    return {"count": histogram.count, "mean": histogram.mean, **shown, "most": histogram.most}


def name_of(share: float) -> str:
    """Return what a percentile is called, e.g. ``p99.9``."""
    return f"p{share * 100:g}"


def _nth(figures: Figures) -> dict[str, float]:
    if figures.nth_tokens_per_second is None:
        return {}
    return {"nth_tokens_per_second": figures.nth_tokens_per_second, "nth_answers": figures.nth_answers}


def _repeats(runs: Sequence[Figures]) -> dict[str, Any]:
    """Return mean and half the 95 % interval of the headline figures over the repeats."""
    if len(runs) < 2:
        return {"count": len(runs)}
    found: dict[str, Any] = {"count": len(runs)}
    series = {name: [getattr(run, name) for run in runs] for name in RATES}
    for name in ("ttft", "tpot", "gap", "e2e"):
        if not all(run.histograms[name].count for run in runs):  # a repeat without one has no figure of it
            continue
        for share in (0.5, 0.99):
            series[f"{name}.{name_of(share)}"] = [run.histograms[name].at(share) for run in runs]
    for name, values in series.items():
        if None not in values:
            mean, half = confidence(values)
            found[name] = {"mean": mean, "plus_minus": half}
    return found


def _request(record: Record) -> dict[str, Any]:
    made: dict[str, Any] = {
        "number": record.number,
        "intended": round(record.intended, 6),
        "sent": round(record.sent, 6),
        "ended": round(record.ended, 6),
        "prompt": record.prompt,
        "answer": record.answer,
        "pieces": len(record.stamps),
    }
    if record.stamps:
        made |= {"first": round(record.stamps[0], 6), "last": round(record.stamps[-1], 6)}
        made["longest_gap"] = round(max(record.gaps(), default=0.0), 6)
    if record.failure is not None:
        made |= {"failure": str(record.failure), "why": record.why}
    return made | ({"warm": True} if record.warm else {})


def histograms_of(document: Mapping[str, Any]) -> dict[str, Histogram]:
    """Return the histograms in a document; raises ``ValueError``."""
    held = document.get("histograms")
    if not isinstance(held, dict):
        raise ValueError("no histograms")
    return {str(name): read_histogram(one) for name, one in held.items()}
