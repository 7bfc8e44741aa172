"""What a configuration reaches at best, in closed form: bounds that reject, and a forecast that ranks.

A bound is optimistic on purpose: a first token takes at least the prompt's own steps, a later token at least a step
with that request alone, and a replica makes at most as many tokens a second as its fullest steps do without a prompt
in them. What misses a promise by its bound cannot keep it in a simulation. The forecast adds what prompts take from
those who generate, and only decides who is simulated first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from trtllm_kit.estimate.cells import StagedClock
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, Clock, StepWork
from trtllm_kit.tune.candidates import Candidate
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Refusal, Room
from trtllm_kit.units import format_bytes, format_seconds

ClockOf = Callable[[Subject], Clock]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of one configuration at one load, per replica where it says so."""

    active: int
    """Requests of one replica that generate at once."""
    waiting: int
    """Requests of one replica that wait for a place."""
    ttft_s: float
    tpot_s: float
    tokens_per_s: float
    """Output tokens a second of all replicas."""
    least_ttft_s: float
    least_tpot_s: float
    most_tokens_per_s: float


@dataclass
class Bounds:
    """Closed forms of one shape; step times are asked once for each batch and step size."""

    room: Room
    clock: Clock
    question: Question
    _decode: dict[int, float] = field(default_factory=dict)
    _prefill: dict[tuple[int, int, int, int], float] = field(default_factory=dict)

    @property
    def tokens_a_step(self) -> float:
        """Tokens a generating request gains a step: one, and the drafts that are taken."""
        return self.room.subject.tokens_a_step

    @property
    def _width(self) -> int:
        return self.room.subject.width

    @property
    def _mean_context(self) -> int:
        return self.question.mean_input + self.question.mean_output // 2

    def decode_s(self, active: int) -> float:
        """Return the mean seconds in which each of that many requests gains its next tokens.

        It is one step, over the length of an answer; with pipeline stages one of each micro-batch, which lasts as long
        as one of them takes through all stages, or as the busiest stage takes for all of them.
        """
        if active not in self._decode:
            lanes = min(self._stages, active)
            each = self._evenly(ceil(active / lanes))
            work = StepWork((), each, each * self._mean_context, self._width)
            self._decode[active] = self.clock.seconds(work)
            if lanes > 1 and isinstance(self.clock, StagedClock):
                busiest = lanes * max(self.clock.stage_seconds(work))
                self._decode[active] = max(self._decode[active], busiest)
        return self._decode[active]

    @property
    def _stages(self) -> int:
        return self.room.subject.split.pipeline

    @property
    def _ranks(self) -> int:
        return self.room.subject.split.data

    def _evenly(self, requests: int) -> int:
        """Return the requests of a step as they count: ranks with requests of their own wait for the fullest."""
        return ceil(requests / self._ranks) * self._ranks

    def prefill_s(self, step_tokens: int, active: int = 0) -> float:
        """Return the seconds that a prompt of mean length adds to the steps of ``active`` generating requests."""
        return self._prompt_s(self.question.mean_input, step_tokens, active, self._together(step_tokens, active))

    def _together(self, step_tokens: int, active: int) -> int:
        """Return the prompts that share a step: as many as answers end in one, as far as its tokens go.

        Ranks with requests of their own each read at least one.
        """
        asked = self.question
        new = max(1, asked.mean_input - asked.shared_prefix)
        ends = ceil(active * self.tokens_a_step / asked.mean_output)
        return max(min(self._ranks, active), min(ends, self._ranks * (step_tokens // new)), 1)

    def _prompt_s(self, prompt: int, step_tokens: int, active: int = 0, together: int = 1) -> float:
        """Return the seconds of a prompt's pieces, of which only the first, the last whole one and the rest are asked.

        A piece's time grows with the tokens before it along a line, or a line that bends down where windows are full;
        so the mean of the first and the last is that of all, or less.
        """
        key = (prompt, min(step_tokens, prompt), active, together)
        if key not in self._prefill:
            start = min(self.question.shared_prefix, prompt - 1)
            whole, rest = divmod(prompt - start, key[1])
            total = self._chunk_s(rest, prompt - rest, active, together) if rest else 0.0
            if whole:
                first = self._chunk_s(key[1], start, active, together)
                past = start + (whole - 1) * key[1]
                last = first if whole == 1 else self._chunk_s(key[1], past, active, together)
                total += whole * (first + last) / 2
            self._prefill[key] = total
        return self._prefill[key]

    def _chunk_s(self, new: int, past: int, active: int, together: int) -> float:
        if not active:
            return self.clock.seconds(StepWork((Chunk(new, past),)))
        each = self._evenly(ceil(active / self._stages))
        context = each * self._mean_context
        mixed = self.clock.seconds(StepWork((Chunk(new, past),) * together, each, context, self._width))
        return max(mixed - self.clock.seconds(StepWork((), each, context, self._width)), 0.0) / together

    def forecast(self, candidate: Candidate, concurrency: int) -> Forecast:
        """Return what to expect when ``concurrency`` requests are always under way over all replicas."""
        asked, held = self.question, ceil(concurrency / candidate.replicas)
        active = min(held, self.places(candidate))
        output = asked.mean_output
        steps = output / self.tokens_a_step
        decode, alone = self.decode_s(active), self.prefill_s(candidate.max_num_tokens)
        added = self.prefill_s(candidate.max_num_tokens, max(active - 1, 0))
        cycle = active * added + steps * decode  # in which each active request is answered once
        copies = concurrency / held
        waits = (held - active) * cycle / active
        each = (steps * decode + (active - 1) * added) / output
        return Forecast(
            active=active,
            waiting=held - active,
            ttft_s=max(alone, added) + decode / 2 + waits,
            tpot_s=each,
            tokens_per_s=copies * active * output / cycle,
            least_ttft_s=self._prompt_s(asked.least_input, candidate.max_num_tokens),
            least_tpot_s=self._least_step_s() / self.tokens_a_step * (output - 1) / output,
            most_tokens_per_s=copies * active * self.tokens_a_step / decode,
        )

    def _least_step_s(self) -> float:
        """Return the seconds of a step with one request at the beginning of its answer."""
        each = self._evenly(1)
        return self.clock.seconds(StepWork((), each, each * self.question.least_input, self._width))

    def concurrency_at(self, candidate: Candidate, rate: float) -> int:
        """Return about how many requests are under way when ``rate`` arrive a second: rate times the time of each.

        A rate that the replicas cannot keep up with fills every place.
        """
        most, held = candidate.replicas * self.places(candidate), 1
        while held < most:
            seen = self.forecast(candidate, held)
            if seen.tokens_per_s / self.question.mean_output >= rate:
                break
            held = min(most, max(held + 1, held * 5 // 4))
        return held

    def places(self, candidate: Candidate) -> int:
        """Return how many requests of the asked length one replica can have under way."""
        each = self.question.mean_input + self.question.mean_output
        if candidate.policy == "max_utilization":  # of the answers half is there on average; no rest is kept free
            each -= self.question.mean_output // 2
        return max(1, min(candidate.slots, candidate.holds(each)))

    def beyond(self, seen: Forecast) -> dict[str, tuple[float, Refusal]]:
        """Return the promises that the bounds say are out of reach: the factor each is missed by at least, and why."""
        slo, asked, found = self.question.slo, self.question, {}
        whole = seen.least_ttft_s + (round(asked.output_tokens * asked.least_share) - 1) * seen.least_tpot_s
        for name, limit, least, how in (
            ("ttft", slo.ttft, seen.least_ttft_s, "the shortest prompt alone"),
            ("tpot", slo.tpot, seen.least_tpot_s, "a request alone"),
            ("e2e", slo.e2e, whole, "the shortest request alone"),
        ):
            if limit is not None and least > limit:
                message = f"{name} cannot be kept: {how} takes longer."
                compared = f"at least {format_seconds(least)}, {format_seconds(limit)} promised"
                found[name] = (least / limit, Refusal(name, message, compared))
        most = seen.most_tokens_per_s / asked.mean_output
        if asked.rate is not None and most < asked.rate:
            message = "The requests come faster than the replicas can answer."
            compared = f"at most {most:.3g} requests a second, {asked.rate:.3g} come"
            found["rate"] = (asked.rate / most, Refusal("rate", message, compared))
        return found


def limits_refusal(room: Room, batch: int, step_tokens: int, fraction: float) -> Refusal | None:
    """Return why a shape cannot take these limits; None when it can."""
    asked_tokens = room.subject.max_seq_len
    budget = room.kv_budget(batch, step_tokens, fraction)
    if budget < 0:
        return Refusal(
            "memory",
            "Buffers of these limits leave no memory for the KV cache.",
            f"{format_bytes(-budget)} too much with batch {batch} and {step_tokens:,} tokens a step",
        )
    if budget < max(room.sequence_kv_bytes, room.longest_kv_bytes):
        needed = max(room.sequence_kv_bytes, room.longest_kv_bytes)
        return Refusal(
            "kv_cache",
            f"The KV cache does not hold one sequence of {asked_tokens:,} tokens.",
            f"{format_bytes(needed)} needed, {format_bytes(budget)} for the KV cache",
        )
    return None


def prompt_refusal(input_tokens: int, step_tokens: int) -> Refusal | None:
    """Return why whole prompts of that length cannot be computed in such steps; None when they can."""
    if input_tokens <= step_tokens:
        return None
    return Refusal(
        "max_num_tokens",
        "A prompt does not fit one step, and is not cut into chunks.",
        f"{input_tokens:,} tokens of a prompt, {step_tokens:,} of a step",
    )
