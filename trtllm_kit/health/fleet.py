"""Several targets in one call, side by side, each with its own time-outs, rules and memory."""

from __future__ import annotations

from collections.abc import Sequence

from trtllm_kit.health.check import Pace, check_remembering, looked_at
from trtllm_kit.health.compiled import Question
from trtllm_kit.health.memory import NOTHING
from trtllm_kit.health.state_file import state_path
from trtllm_kit.health.verdict import Verdict

AT_ONCE = 64
"""Most targets that are read at the same time: each thread waits for its server, and parses when it answers."""


MANY = 40
"""Targets from which on one core is not enough."""
MOST_COPIES = 4


def check_all(questions: Sequence[Question], pace: Pace, folder: str | None) -> list[tuple[Verdict, bool]]:
    """Check every target; returns the verdicts in their order, each with whether it is another than before.

    Without a ``folder`` nothing is remembered. Raises ``UsageError`` for numbers that make no check.
    """
    pace = pace.checked()

    def one(question: Question) -> tuple[Verdict, bool]:
        target, ruleset = question
        if folder is None:
            verdict = looked_at(target, ruleset, pace, NOTHING)[0]
            return verdict, verdict.state.severity > 0
        return check_remembering(target, ruleset, pace, state_path(folder, target))

    def together(share: Sequence[Question]) -> list[tuple[Verdict, bool]]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(AT_ONCE, len(share))) as pool:
            return list(pool.map(one, share))

    if len(questions) == 1:
        return [one(questions[0])]
    if len(questions) < MANY:
        return together(questions)
    from trtllm_kit.health.sources.forks import cores, shared_out

    return shared_out(together, questions, min(cores(), MOST_COPIES, len(questions) // (MANY // 2)))
