"""Searches small enough to be checked by trying everything: two GPUs, a clock of four numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import StepWork
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.tune.candidates import shapes
from trtllm_kit.tune.parallel import Task, see
from trtllm_kit.tune.points import Seen
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Asked
from trtllm_kit.tune.search import Search


@dataclass(frozen=True)
class PlainClock:
    """Weights are read once a step, rows are computed, keys are read; all of it is shared by the ranks."""

    subject: Subject
    weights_s: float = 0.008
    row_s: float = 2e-5
    token_s: float = 2e-8
    fixed_s: float = 0.001

    def seconds(self, work: StepWork) -> float:
        """Return the seconds of a step."""
        ranks = self.subject.split.tensor * self.subject.split.pipeline
        half = 0.5 if self.subject.formats.weights == "fp8" else 1.0
        read = sum(chunk.new * chunk.past for chunk in work.chunks) * 1e-3 + work.context
        shared = half * (self.weights_s + work.rows * self.row_s) + read * self.token_s
        return self.fixed_s * ranks + shared / ranks

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Return the seconds of consecutive steps: affine in the context."""
        first = self.seconds(StepWork((), sequences, context))
        last = self.seconds(StepWork((), sequences, context + sequences * (steps - 1)))
        return steps * (first + last) / 2


def asked(question: Question, changes: dict[str, Any] | None = None, machine: Hardware | None = None) -> Asked:
    """Ask for 8B on two GPUs of 80 GiB, or on another machine."""
    machine = machine or hardware(2)
    return Asked(llama_8b(), profile({"hardware": machine.name, **(changes or {})}), {machine.name: machine}, question)


def searched(
    question: Question,
    changes: dict[str, Any] | None = None,
    machine: Hardware | None = None,
    *,
    most: int = 48,
) -> Search:
    """Run a search with the plain clock, in this process."""
    what = asked(question, changes, machine)
    search = Search(what, PlainClock, in_turn, most, finalists=8)
    search.run(shapes(what.model, what.loaded.profile, "unified_hf", what.machines.values(), question))
    return search


def in_turn(tasks: Sequence[Task]) -> list[Seen]:
    """Simulate every task in this process."""
    return [see(task) for task in tasks]


@cache
def small_search() -> Search:
    """Return one search for all tests that only look at it: 16 requests at once of 256 + 64 tokens."""
    return searched(Question(256, 64, concurrency=16))
