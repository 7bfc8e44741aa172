"""How much a deployment takes: more users until their answers come no faster. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trtllm_kit.bench.figures import Figures
from trtllm_kit.bench.load import Load
from trtllm_kit.errors import RequestFailed
from trtllm_kit.estimate.workload import ClosedLoop

GAIN = 0.05
"""A doubling of the users that brings less throughput than this share more is none."""
MOST_USERS = 4096
ROUNDS = 4
"""Requests of each user in a step, the first of which is not counted."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one number of users gave."""

    users: int
    requests_per_second: float
    output_tokens_per_second: float


def saturation(measure: Callable[[int], Figures]) -> tuple[Step, ...]:
    """Double the users until throughput grows by less than 5 %; the best of the steps is the saturation.

    Raises ``RequestFailed`` when nothing is answered with one user.
    """
    steps: list[Step] = []
    users = 1
    while users <= MOST_USERS:
        figures = measure(users)
        if not figures.answered and not steps:
            raise RequestFailed(
                "no saturation is found", why=f"with one user nothing is answered: {figures.failures}",
                hint="run without --load-fraction, and look at what fails",
            )  # fmt: skip
        steps.append(Step(users, figures.requests_per_second, figures.output_tokens_per_second))
        if reached(steps):
            break
        users *= 2
    return tuple(steps)


def reached(steps: Sequence[Step]) -> bool:
    """Whether the last doubling of the users brought no more; False where the most users were not enough."""
    return len(steps) > 1 and steps[-1].output_tokens_per_second < steps[-2].output_tokens_per_second * (1 + GAIN)


def most_of(steps: tuple[Step, ...]) -> Step:
    """Return the step with the most tokens a second."""
    return max(steps, key=lambda step: step.output_tokens_per_second)


def at_users(load: Load, users: int) -> Load:
    """Return the same requests in a closed loop of so many users."""
    work = replace(load.workload, arrivals=ClosedLoop(users), requests=users * ROUNDS, warmup=users, cooldown=0)
    return replace(load, workload=work)
