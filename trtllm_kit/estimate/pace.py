"""How many tokens a sequence gets in so many generation steps: one each, or with drafts what the model agrees with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, floor
from random import Random
from typing import Protocol

from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.subject import Speculation


class Pace(Protocol):
    """The tokens of one sequence over its generation steps, fixed when it begins to generate."""

    def after(self, steps: int) -> int:
        """Return the tokens of the first ``steps`` steps together."""
        ...

    def steps_for(self, tokens: int) -> int:
        """Return the steps until at least that many tokens are there."""
        ...


class Single:
    """One token a step."""

    def after(self, steps: int) -> int:
        """Return the steps."""
        return steps

    def steps_for(self, tokens: int) -> int:
        """Return the tokens."""
        return tokens


class Expected:
    """The mean number of tokens a step, in whole tokens: no chance in it."""

    def __init__(self, rate: float) -> None:
        """Take the tokens a step."""
        self.rate = rate

    def after(self, steps: int) -> int:
        """Return the mean, rounded down."""
        return floor(steps * self.rate + _ROUNDING)

    def steps_for(self, tokens: int) -> int:
        """Return the first step at which the mean has come so far."""
        return ceil((tokens - _ROUNDING) / self.rate)


_ROUNDING = 1e-9
SINGLE = Single()


class Drawn:
    """Every step's tokens drawn by the chance of each position; one draw for the whole answer."""

    def __init__(self, acceptance: Sequence[float], drafted: int, tokens: int, random: Random) -> None:
        """Draw steps until ``tokens`` tokens are there."""
        self._reached = [0]
        reach = list(accumulate(acceptance[:drafted], lambda before, chance: before * chance))
        while self._reached[-1] < tokens:
            self._reached.append(self._reached[-1] + 1 + _taken(reach, random.random()))

    def after(self, steps: int) -> int:
        """Return the tokens drawn so far."""
        return self._reached[min(steps, len(self._reached) - 1)]

    def steps_for(self, tokens: int) -> int:
        """Return the step that brings them."""
        return bisect_left(self._reached, tokens)


def _taken(reach: Sequence[float], dice: float) -> int:
    """Return how many draft tokens are taken: position k is, when the dice are below the chance to reach beyond it."""
    return sum(1 for chance in reach if dice < chance)


class Paces:
    """The pace of every answer of an engine."""

    def __init__(self, speculation: Speculation | None, seed: int | None) -> None:
        """Take what is drafted; without a seed every step accepts the mean.

        Raises ``UsageError`` when drafts are made and nobody knows how many are accepted.
        """
        self._speculation = speculation
        self._seed = seed
        self._mean: Pace = SINGLE
        if speculation is not None:
            _refuse_unknown(speculation)
            self._mean = Expected(speculation.tokens_a_step)

    @property
    def rate(self) -> float | None:
        """Tokens a step, where it is the same for all answers; None where it is drawn."""
        if self._speculation is None:
            return 1.0
        return None if self._seed is not None else self._speculation.tokens_a_step

    def of(self, number: int, told: int, tokens: int) -> Pace:
        """Return the pace of the last ``tokens`` tokens of the answer of that number, after ``told`` of it."""
        if self._speculation is None or self._seed is None:
            return self._mean
        random = Random(f"drafts {self._seed} {number} {told}")  # noqa: S311  # chance, not secrets
        return Drawn(self._speculation.acceptance, self._speculation.draft_tokens, tokens, random)


def _refuse_unknown(speculation: Speculation) -> None:
    known, drafted = len(speculation.acceptance), speculation.draft_tokens
    if known < drafted:
        raise UsageError(
            f"{drafted} draft tokens of kind {speculation.kind} at an unknown acceptance",
            why=f"the chance that a draft is taken is known for {known} of {drafted} positions",
            hint=f"--acceptance {','.join(['0.8'] * drafted)}, or as measured: a chance of 0 to 1 for each position",
        )
