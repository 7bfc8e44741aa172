"""A clock that was held against a running deployment: steps take longer by learned factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trtllm_kit.estimate.step_time import StepClock, StepTime, Term
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import StepWork


@dataclass(frozen=True, slots=True)
class Correction:
    """By how much steps take longer than predicted."""

    prompt: float = 1.0
    """Steps with a part of a prompt in them."""
    generation: float = 1.0
    """All others."""

    def of(self, work: StepWork) -> float:
        """Return the factor of a step."""
        return self.prompt if work.chunks else self.generation


class CorrectedClock(StepClock):
    """A step clock with a correction on all it says of steps."""

    def __init__(self, subject: Subject, correction: Correction) -> None:
        """Take what the correction is applied to."""
        super().__init__(subject)
        self.correction = correction

    def seconds(self, work: StepWork) -> float:
        """Return the seconds of a step, corrected."""
        return self.correction.of(work) * super().seconds(work)

    def stage_seconds(self, work: StepWork) -> tuple[float, ...]:
        """Return the seconds that each pipeline stage is busy, corrected."""
        factor = self.correction.of(work)
        return tuple(factor * seconds for seconds in super().stage_seconds(work))

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Return the seconds of consecutive generation steps, corrected."""
        return self.correction.generation * super().decode_run(sequences, context, steps)

    def explain(self, work: StepWork) -> StepTime:
        """Return a step's terms, each corrected by the same factor."""
        factor, plain = self.correction.of(work), super().explain(work)
        return replace(
            plain,
            seconds=self.seconds(work),
            terms=tuple(_scaled(term, factor) for term in plain.terms),
            host=_scaled(plain.host, factor),
            exposed=plain.exposed * factor,
        )


def clock_with(correction: Correction | None) -> Callable[[Subject], StepClock]:
    """Return what makes clocks under a correction; plain ones without."""
    return StepClock if correction is None else lambda subject: CorrectedClock(subject, correction)


def _scaled(term: Term, factor: float) -> Term:
    return replace(term, seconds=term.seconds * factor, low=term.low * factor, high=term.high * factor)
