"""What a running deployment takes, what was predicted for it, and the correction that follows.

A closed loop of streams is run at a few loads. Two factors are learned from them: one of steps with a part of a prompt
in them, from first tokens, and one of the others, from later tokens. How far predictions are off afterwards is told of
loads that the factors were not learned from: each is left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

from trtllm_kit.bench.load import Load
from trtllm_kit.bench.run import Bench, Server
from trtllm_kit.errors import RequestFailed
from trtllm_kit.estimate.spread import spread_of
from trtllm_kit.estimate.workload import ClosedLoop, Workload, fixed
from trtllm_kit.tune.corrected import Correction

ROUNDS = 3
"""Requests of each user of a load; the first ones count in no figure."""


@dataclass(frozen=True, slots=True)
class Times:
    """Means over the requests of one load, seconds."""

    concurrency: int
    ttft: float
    tpot: float
    doubt: str = ""
    """Why a measured time is the client's own rather than the server's; empty when it is not."""


Take = Callable[[int, int, int], Times]
"""Measures a load of so many users, of prompts and answers of so many tokens."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Predictions held against measurements: shares of the measured time, means over the loads."""

    correction: Correction
    ttft_before: float
    tpot_before: float
    ttft_after: float
    """Of each load by the factors of the others; as before where there is no other."""
    tpot_after: float
    doubts: tuple[str, ...] = ()
    """Loads at which the client was the bottleneck, and by what."""


def taking(server: Server) -> Take:
    """Return what measures a server with the client of ``trtkit bench``."""
    return lambda concurrency, prompt, answer: measure(server, concurrency, prompt, answer)


def measure(server: Server, concurrency: int, input_tokens: int, output_tokens: int) -> Times:
    """Keep ``concurrency`` streams under way until each user has had its requests; return the means.

    Prompts differ from their beginning on, so that none is cached. Raises ``RequestFailed`` when a request fails, or
    when no answer has a second token.
    """
    requests = concurrency * ROUNDS
    traffic = Workload(
        fixed(input_tokens), fixed(output_tokens), ClosedLoop(concurrency), requests, seed=concurrency,
        warmup=concurrency,
    )  # fmt: skip
    once = Bench(server, Load(traffic)).once(Load(traffic))
    if once.stopped is not None:
        raise once.stopped
    failed = [record for record in once.records if record.failure is not None]
    if failed:
        raise RequestFailed(
            f"{len(failed)} of {requests} requests failed", why=f"{failed[0].failure}: {failed[0].why}",
            hint="start the server, or correct --measure and --served-model",
        )  # fmt: skip
    times = once.figures.histograms
    if not times["tpot"].mean or once.figures.pieces < 2 * once.figures.answered:
        raise RequestFailed(
            "no answer has two tokens at two times",
            why=f"{requests} requests for {output_tokens} tokens were answered in one piece, or in all at once",
            hint="ask for longer answers (--osl), or set engine.stream_interval: 1",
        )
    return Times(concurrency, times["ttft"].mean, times["tpot"].mean, once.lag.bottleneck)


def correction_of(pairs: Sequence[tuple[Times, Times]]) -> Correction:
    """Return the factors that bring predictions to measurements, each the geometric mean of its ratios.

    ``pairs`` are predicted and measured times of a load; a time of 0 says nothing.
    """
    return Correction(
        _mean_ratio((predicted.ttft, measured.ttft) for predicted, measured in pairs),
        _mean_ratio((predicted.tpot, measured.tpot) for predicted, measured in pairs),
    )


def compare(pairs: Sequence[tuple[Times, Times]], again: Callable[[Correction, int], Times]) -> Compared:
    """Return the correction of all pairs, and the errors before it and after.

    ``again`` predicts a load, by its place among the pairs, under a correction: what a factor of the steps does to the
    wait of a request is for the simulation to say.
    """
    before = [_errors(predicted, measured) for predicted, measured in pairs]
    after = before
    if len(pairs) > 1:
        after = [
            _errors(again(correction_of([*pairs[:place], *pairs[place + 1 :]]), place), measured)
            for place, (_, measured) in enumerate(pairs)
        ]
    return Compared(
        correction_of(pairs),
        spread_of(error for error, _ in before).mean,
        spread_of(error for _, error in before).mean,
        spread_of(error for error, _ in after).mean,
        spread_of(error for _, error in after).mean,
        tuple(f"at {seen.concurrency}: {seen.doubt}" for _, seen in pairs if seen.doubt),
    )


def _errors(predicted: Times, measured: Times) -> tuple[float, float]:
    return abs(predicted.ttft / measured.ttft - 1), abs(predicted.tpot / measured.tpot - 1)


def _mean_ratio(pairs: Iterable[tuple[float, float]]) -> float:
    ratios = [log(measured / predicted) for predicted, measured in pairs if predicted > 0 and measured > 0]
    return exp(sum(ratios) / len(ratios)) if ratios else 1.0
