"""What an engine ran in a load, kept small: so that other constants can be tried without running the load again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from trtllm_kit.estimate.work import Clock, StepWork

KEPT = 8
"""Steps with prompts that stand for all of a load, and bins of generation steps by batch."""


@dataclass(slots=True)
class Recorder:
    """A clock that notes what it is asked."""

    clock: Clock
    prompts: list[StepWork] = field(default_factory=list)
    generation: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    """By sequences and width: steps, and the sum of their cached tokens."""

    def seconds(self, work: StepWork) -> float:
        """Note a step, and return its seconds."""
        if work.chunks:
            self.prompts.append(work)
        else:
            self._note(work.sequences, work.width, 1, work.context)
        return self.clock.seconds(work)

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Note a run of steps, and return its seconds."""
        self._note(sequences, 1, steps, context + sequences * (steps - 1) / 2)
        return self.clock.decode_run(sequences, context, steps)

    def _note(self, sequences: int, width: int, steps: int, context: float) -> None:
        held = self.generation.setdefault((sequences, width), [0.0, 0.0])
        held[0] += steps
        held[1] += steps * context


@dataclass(frozen=True, slots=True)
class Load:
    """A load as few steps, each with the number it stands for."""

    prompts: tuple[tuple[StepWork, float], ...]
    generation: tuple[tuple[StepWork, float], ...]

    def seconds(self, clock: Clock) -> float:
        """Return the seconds of all steps."""
        return sum(count * clock.seconds(work) for work, count in (*self.prompts, *self.generation))

    def prompt_seconds(self, clock: Clock) -> float:
        """Return the seconds of the steps with prompts."""
        return sum(count * clock.seconds(work) for work, count in self.prompts)

    def token_seconds(self, clock: Clock) -> float:
        """Return the mean seconds between tokens of a sequence: each step counts for those that generate in it."""
        steps = (*self.prompts, *self.generation)
        tokens = sum(count * work.sequences for work, count in steps)
        return sum(count * work.sequences * clock.seconds(work) for work, count in steps) / tokens if tokens else 0.0


def load_of(recorder: Recorder) -> Load:
    """Return what was noted: every step with prompts is as likely to be kept, batches close to each other are one."""
    kept = random.Random(0).sample(recorder.prompts, min(KEPT, len(recorder.prompts)))
    each = len(recorder.prompts) / len(kept) if kept else 0.0
    return Load(tuple((work, each) for work in kept), tuple(_bins(recorder.generation)))


def _bins(noted: dict[tuple[int, int], list[float]]) -> list[tuple[StepWork, float]]:
    total = sum(sequences * steps for (sequences, _), (steps, _) in noted.items())
    found, held = list[tuple[StepWork, float]](), list[tuple[int, int, float, float]]()
    for (sequences, width), (steps, context) in sorted(noted.items()):
        held.append((sequences, width, steps, context))
        if sum(one[0] * one[2] for one in held) >= total / KEPT:
            found.append(_bin(held))
            held = []
    return [*found, _bin(held)] if held else found


def _bin(held: list[tuple[int, int, float, float]]) -> tuple[StepWork, float]:
    steps = sum(one[2] for one in held)
    sequences = round(sum(one[0] * one[2] for one in held) / steps)
    context = round(sum(one[3] for one in held) / steps)
    return StepWork(sequences=sequences, context=context, width=held[0][1]), steps
