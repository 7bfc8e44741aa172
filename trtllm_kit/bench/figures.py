"""What a run measured. Latencies are those of ``estimate.outcome``; here they are collected over requests. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trtllm_kit.bench.histogram import Histogram
from trtllm_kit.bench.record import Failure, Record
from trtllm_kit.estimate.outcome import Served, Slo

SHARES = (0.5, 0.9, 0.99, 0.999)
"""Percentiles that are shown, as shares."""
LATENCIES = ("ttft", "tpot", "tpot_with_first", "gap", "e2e", "late")
"""The histograms of a run, seconds."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run measured; warm-up is in nothing, and failed requests are in no latency."""

    histograms: dict[str, Histogram]
    """By the names of ``LATENCIES``: first token; later tokens' mean; the whole over all tokens, as some tools define
    it; times between pieces, each counted once; whole answer; how late requests were sent."""
    seconds: float
    """From the first counted request to the last end of one."""
    asked: int
    answered: int
    failures: dict[str, int]
    """How many, by kind."""
    why: tuple[str, ...]
    """Some of what failed, in words."""
    prompt_tokens: int
    output_tokens: int
    """Of requests that were answered."""
    counted: dict[str, int]
    """Answers by what their number of tokens rests on."""
    pieces: int
    kept: int | None
    """Answers that kept every limit of the SLO; None without one."""
    user_tokens_per_second: float
    """Tokens a second that a user sees from the first token to the last: the mean over requests."""
    nth_tokens_per_second: float | None
    """The same from the first to the nth token, of answers that are as long; None where that is not asked."""
    nth_answers: int

    @property
    def output_tokens_per_second(self) -> float:
        """Tokens a second of all answers."""
        return self.output_tokens / self.seconds if self.seconds else 0.0

    @property
    def requests_per_second(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds if self.seconds else 0.0

    @property
    def goodput(self) -> float | None:
        """Answers a second that kept every limit; None without an SLO."""
        return None if self.kept is None else self.kept / self.seconds if self.seconds else 0.0

    @property
    def kept_share(self) -> float | None:
        """Share of the requests that kept every limit, failed ones counted as broken; None without an SLO."""
        return None if self.kept is None else self.kept / self.asked if self.asked else 0.0

    @property
    def failed_share(self) -> float:
        """Share of the requests that failed."""
        return 1 - self.answered / self.asked if self.asked else 0.0


def figures_of(records: Iterable[Record], slo: Slo | None = None, nth: int | None = None) -> Figures:
    """Return what the counted requests among the records say."""
    counted = [record for record in records if not record.warm and record.failure is not Failure.CUT]
    good = [record for record in counted if record.failure is None]
    served = [record.served for record in good]
    failed = [record for record in counted if record.failure is not None]
    window = [rate for record in good if nth and (rate := _rate_to(record, nth)) is not None]
    begun = min((record.intended for record in counted), default=0.0)
    return Figures(
        histograms=_histograms(good, served),
        seconds=max((record.ended for record in counted), default=begun) - begun,
        asked=len(counted),
        answered=len(good),
        failures=dict(Counter(str(record.failure) for record in failed)),
        why=tuple(dict.fromkeys(record.why for record in failed))[:5],
        prompt_tokens=sum(record.prompt for record in good),
        output_tokens=sum(record.answer for record in good),
        counted=dict(Counter(str(record.counted) for record in good)),
        pieces=sum(len(record.stamps) for record in good),
        kept=None if slo is None else sum(not slo.broken_by(one) for one in served),
        user_tokens_per_second=_mean([one.tokens_per_second for one in served if one.tpot]),
        nth_tokens_per_second=_mean(window) if nth else None,
        nth_answers=len(window),
    )


def _histograms(records: Sequence[Record], served: Sequence[Served]) -> dict[str, Histogram]:
    found = {name: Histogram() for name in LATENCIES}
    for record, one in zip(records, served, strict=True):
        found["ttft"].add(one.ttft)
        found["e2e"].add(one.e2e)
        found["late"].add(record.sent - record.intended)
        found["tpot_with_first"].add(one.e2e / max(one.answer, 1))
        if one.answer > 1:
            found["tpot"].add(one.tpot)
        for gap in record.gaps():
            found["gap"].add(gap)
    return found


def _rate_to(record: Record, nth: int) -> float | None:
    """Return tokens a second from the first to the nth token; None for a shorter answer."""
    last = record.stamp_of(nth)
    if last is None or last <= record.stamps[0]:
        return None
    return (nth - 1) / (last - record.stamps[0])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Two-sided 95 % points of Student's distribution for 1 to 9 degrees of freedom."""


def confidence(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of repeats and half the width of its 95 % interval; 0 wide for one repeat."""
    mean = _mean(values)
    freedom = len(values) - 1
    if freedom < 1:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / freedom
    factor = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 2.2 if freedom < 30 else 1.96
    return mean, factor * float((variance / len(values)) ** 0.5)


def merged(runs: Sequence[Figures]) -> Figures:
    """Return several repeats as one: counts and times added, rates weighted by what they are means of."""
    if len(runs) == 1:
        return runs[0]
    histograms = {name: Histogram() for name in LATENCIES}
    failures, counted = Counter[str](), Counter[str]()
    for run in runs:
        failures.update(run.failures)
        counted.update(run.counted)
        for name, histogram in run.histograms.items():
            histograms[name].merge(histogram)
    kept = [run.kept for run in runs if run.kept is not None]
    users = [(run.user_tokens_per_second, run.histograms["tpot"].count) for run in runs]
    nth = [(run.nth_tokens_per_second or 0.0, run.nth_answers) for run in runs]
    return Figures(
        histograms=histograms,
        seconds=sum(run.seconds for run in runs),
        asked=sum(run.asked for run in runs),
        answered=sum(run.answered for run in runs),
        failures=dict(failures),
        why=tuple(dict.fromkeys(why for run in runs for why in run.why))[:5],
        prompt_tokens=sum(run.prompt_tokens for run in runs),
        output_tokens=sum(run.output_tokens for run in runs),
        counted=dict(counted),
        pieces=sum(run.pieces for run in runs),
        kept=sum(kept) if kept else None,
        user_tokens_per_second=_weighted(users),
        nth_tokens_per_second=None if runs[0].nth_tokens_per_second is None else _weighted(nth),
        nth_answers=sum(run.nth_answers for run in runs),
    )


def _weighted(pairs: Sequence[tuple[float, int]]) -> float:
    weight = sum(count for _, count in pairs)
    return sum(value * count for value, count in pairs) / weight if weight else 0.0
