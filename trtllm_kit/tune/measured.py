"""What a running deployment takes, what was predicted for it, and the correction that follows.

A closed loop of streams is run at a few loads. Two factors are learned from them: one of steps with a part of a prompt
in them, from first tokens, and one of the others, from later tokens. How far predictions are off afterwards is told of
loads that the factors were not learned from: each is left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from threading import Lock, Thread

from trtllm_kit.errors import RequestFailed
from trtllm_kit.estimate.spread import spread_of
from trtllm_kit.serve.client import Piece, Sampling, stream
from trtllm_kit.tune.corrected import Correction

Ask = Callable[[str, int], Iterator[Piece]]
"""Streams the answer to a prompt, of at most so many tokens."""
WORD = " one"
"""What prompts are made of: a token of its own in the vocabularies of Llama, Qwen, Mistral, DeepSeek and GPT."""
ROUNDS = 3
"""Requests of each place of a load; the first of each counts in no figure."""


@dataclass(frozen=True, slots=True)
class Times:
    """Means over the requests of one load, seconds."""

    concurrency: int
    ttft: float
    tpot: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Predictions held against measurements: shares of the measured time, means over the loads."""

    correction: Correction
    ttft_before: float
    tpot_before: float
    ttft_after: float
    """Of each load by the factors of the others; as before where there is no other."""
    tpot_after: float


def asks(url: str, model: str) -> Ask:
    """Return what streams from a Triton server."""
    return lambda prompt, tokens: stream(url, model, prompt, Sampling(max_tokens=tokens))


def measure(ask: Ask, concurrency: int, input_tokens: int, output_tokens: int) -> Times:
    """Keep ``concurrency`` streams under way until each place has had its requests; return the means.

    Prompts differ in their beginning, so that none is cached. Raises ``RequestFailed`` when a request fails, or when
    no answer has a second token.
    """
    found: list[tuple[float, float]] = []
    failed: list[RequestFailed] = []
    lock = Lock()

    def run(place: int) -> None:
        for turn in range(ROUNDS):
            prompt = f"{concurrency} {place} {turn}" + WORD * input_tokens
            try:
                times = _times_of(ask(prompt, output_tokens))
            except RequestFailed as error:
                failed.append(error)
                return
            if turn and times is not None:
                with lock:
                    found.append(times)

    threads = [Thread(target=run, args=(place,), daemon=True) for place in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    if not found:
        raise RequestFailed(
            "no answer has two tokens",
            why=f"{concurrency * ROUNDS} requests for {output_tokens} tokens were answered in one piece or none",
            hint="ask for longer answers (--osl), or set engine.stream_interval: 1",
        )
    return Times(concurrency, spread_of(first for first, _ in found).mean, spread_of(later for _, later in found).mean)


def _times_of(pieces: Iterable[Piece]) -> tuple[float, float] | None:
    """Return seconds to the first piece, and of each later one; None for an answer of fewer than two pieces."""
    seconds = [piece.seconds for piece in pieces if piece.text]
    if len(seconds) < 2:
        return None
    return seconds[0], (seconds[-1] - seconds[0]) / (len(seconds) - 1)


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
    )


def _errors(predicted: Times, measured: Times) -> tuple[float, float]:
    return abs(predicted.ttft / measured.ttft - 1), abs(predicted.tpot / measured.tpot - 1)


def _mean_ratio(pairs: Iterable[tuple[float, float]]) -> float:
    ratios = [log(measured / predicted) for predicted, measured in pairs if predicted > 0 and measured > 0]
    return exp(sum(ratios) / len(ratios)) if ratios else 1.0
