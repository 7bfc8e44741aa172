"""The draft length by batch size: checking drafts costs little while weights bound a step, and much when rows do."""

from __future__ import annotations

from collections.abc import Sequence

from trtllm_kit.estimate.draft import OFF, DraftLength, accepted_tokens, release_keys
from trtllm_kit.estimate.work import Clock, StepWork
from trtllm_kit.light import dataclass
from trtllm_kit.upstream.speculation import Kind, draft_schedule, speculation_field


@dataclass(frozen=True)
class DraftCost:
    """What drafting one token takes, beyond what the clock counts for checking it.

    Both parts are 0 where the clock's steps include the draft.
    """

    seconds: float = 0.0
    share: float = 0.0
    """As a share of a step of the same batch without drafts, e.g. 0.03."""

    def of(self, length: int, plain: float) -> float:
        """Return the seconds of drafting ``length`` tokens, one after the other, beside a plain step's seconds."""
        return length * (self.seconds + self.share * plain)


INCLUDED = DraftCost()
"""The clock's steps include the draft."""


@dataclass(frozen=True)
class BatchLength:
    """The best draft length at one batch size."""

    batch: int
    plain_seconds: float
    """A step without drafts."""
    best: DraftLength
    lengths: tuple[DraftLength, ...]
    """All lengths, ``OFF`` first."""


@dataclass(frozen=True)
class BatchAnswer:
    """Draft lengths over batch sizes."""

    batches: tuple[BatchLength, ...]
    break_even: int
    """The largest batch at which drafting still pays; 0 when it never does."""
    pays_throughout: bool
    """Whether it pays at the largest batch that was asked about."""


def by_batch(
    clock: Clock,
    acceptance: Sequence[float],
    batches: Sequence[int],
    context: int,
    cost: DraftCost = INCLUDED,
) -> BatchAnswer:
    """Return the best length at each batch of ``batches``, and the batch above which drafting does not pay.

    ``acceptance`` is the chance of each position given those before; ``context`` the cached tokens of a sequence.
    The break-even is exact to one request between the two batches that it lies between.
    """
    asked = sorted(set(batches))
    found = tuple(at_batch(clock, acceptance, batch, context, cost) for batch in asked)
    paying = [one.batch for one in found if one.best.length]
    if not paying:
        return BatchAnswer(found, 0, False)
    beyond = [batch for batch in asked if batch > paying[-1]]
    if not beyond:
        return BatchAnswer(found, paying[-1], True)
    low, high = paying[-1], beyond[0]
    while high - low > 1:
        middle = (low + high) // 2
        pays = at_batch(clock, acceptance, middle, context, cost).best.length > 0
        low, high = (middle, high) if pays else (low, middle)
    return BatchAnswer(found, low, False)


def at_batch(clock: Clock, acceptance: Sequence[float], batch: int, context: int, cost: DraftCost) -> BatchLength:
    """Return the best length at one batch size: off unless some length is quicker than no drafts."""
    plain = clock.seconds(StepWork(sequences=batch, context=batch * context))
    lengths = [OFF]
    for length in range(1, len(acceptance) + 1):
        checked = clock.seconds(StepWork(sequences=batch, context=batch * context, width=1 + length))
        overhead = (checked + cost.of(length, plain)) / plain - 1
        accepted = accepted_tokens(acceptance, length)
        lengths.append(DraftLength(length, accepted, overhead, (1 + accepted) / (1 + overhead), "computed"))
    best = max(lengths, key=lambda one: (one.speedup, -one.length))
    return BatchLength(batch, plain, best, tuple(lengths))


def schedule_keys(kind: Kind, release: str, answer: BatchAnswer) -> dict[str, object]:
    """Return the fields of ``speculative_config`` that carry the best length of each batch size.

    A release with a ``draft_len_schedule`` gets one, in its own sense of the keys; another one gets the length of the
    smallest batch, and the batch above which speculation is switched off. Nothing, where the smallest batch does not
    draft.
    """
    steps = ladder(answer)
    longest = steps[0][1]
    if not longest:
        return {}
    schedule = draft_schedule(release)
    if schedule is None or len(steps) == 1 or speculation_field(kind, "draft_len_schedule", release) is None:
        return release_keys(kind, release, longest, None if answer.pays_throughout else answer.break_even)
    ends = [least - 1 for least, _ in steps[1:]] + [answer.batches[-1].batch]
    largest = {end: length for end, (_, length) in zip(ends, steps, strict=True) if length}
    return {
        **release_keys(kind, release, longest),
        "draft_len_schedule": dict(steps) if schedule.keys == "least" else largest,
    }


def ladder(answer: BatchAnswer) -> list[tuple[int, int]]:
    """Return the least batch of each draft length, from 1 up; behind the break-even the length is 0.

    Between two batches that were asked about the smaller one's length holds. No length is above the first, which is
    the most that a release drafts.
    """
    found = [(1, answer.batches[0].best.length)]
    found += [(one.batch, one.best.length) for one in answer.batches[1:] if one.batch <= answer.break_even]
    if not answer.pays_throughout:
        found.append((answer.break_even + 1, 0))
    steps: list[tuple[int, int]] = []
    for least, length in found:
        kept = min(length, found[0][1])
        if not steps or kept != steps[-1][1]:
            steps.append((least, kept))
    return steps
