"""Several targets in one call, side by side, each with its own time-outs, rules and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trtllm_kit.health.check import Pace, check_remembering, concluded, left, looked_at, next_reading
from trtllm_kit.health.compiled import Question
from trtllm_kit.health.memory import NOTHING, pulse_of, recalled
from trtllm_kit.health.snapshot import Snapshot, Target
from trtllm_kit.health.state_file import recall, state_path
from trtllm_kit.health.verdict import Finding, Verdict

AT_ONCE = 64
"""Most targets that have a thread each: those that need more than one page of an address."""
MANY = 40
"""Targets from which on one core is not enough."""
MOST_COPIES = 4
Told = tuple[Verdict, bool]
"""A verdict, and whether it is another than the one before."""


def check_all(questions: Sequence[Question], pace: Pace, folder: str | None) -> list[Told]:
    """Check every target; returns the verdicts in their order, each with whether it is another than before.

    Without a ``folder`` nothing is remembered. Raises ``UsageError`` for numbers that make no check.
    """
    pace = pace.checked()
    if len(questions) == 1:
        return [_check(questions[0], pace, folder)]

    def together(share: Sequence[Question]) -> list[Told]:
        return _check_together(share, pace, folder)

    if len(questions) < MANY:
        return together(questions)
    from trtllm_kit.health.sources.forks import cores, shared_out

    return shared_out(together, questions, min(cores(), MOST_COPIES, len(questions) // (MANY // 2)))


def _check(question: Question, pace: Pace, folder: str | None) -> Told:
    target, ruleset = question
    if folder is not None:
        return check_remembering(target, ruleset, pace, state_path(folder, target))
    verdict = looked_at(target, ruleset, pace, NOTHING)[0]
    return verdict, verdict.state.severity > 0


def _check_together(questions: Sequence[Question], pace: Pace, folder: str | None) -> list[Told]:
    """Check those that are one page of an address in one loop, and meanwhile the others in a thread each."""
    from trtllm_kit.health.sources.http_many import is_for_many

    plain = [number for number, (target, _) in enumerate(questions) if _is_one_page(target) and is_for_many(target.url)]
    others = sorted(set(range(len(questions))) - set(plain))
    made: dict[int, Told] = {}

    def watch() -> None:
        made.update(zip(plain, _watched([questions[number] for number in plain], pace, folder), strict=True))

    if not others:
        watch()
    else:
        in_threads(lambda number: made.update({number: _check(questions[number], pace, folder)}), others, watch)
    return [made[number] for number in range(len(questions))]


def in_threads(there: Callable[[int], None], numbers: Sequence[int], here: Callable[[], None] | None = None) -> None:
    """Do one thing for each number in threads and another one here meanwhile; what goes wrong in a thread is raised.

    What no thread is there for is done here in the end. Whoever is ended by a signal waits for no silent server.
    """
    from threading import Thread

    waiting, failed = iter(numbers), list[Exception]()

    def work() -> None:
        for number in waiting:
            try:
                there(number)
            except Exception as error:  # noqa: BLE001  # it is raised below
                failed.append(error)

    threads = [Thread(target=work, daemon=True) for _ in range(min(AT_ONCE, len(numbers)))]
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:  # the system allows no more of them
            break
    if here is not None:
        here()
    work()
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    if failed:
        raise failed[0]


def _is_one_page(target: Target) -> bool:
    return not (target.beside or target.nvml or target.via or target.canary)


class _Case:
    """One target of a loop, with what was remembered of it and what was read."""

    def __init__(self, question: Question, folder: str | None) -> None:
        self.target, self.ruleset = question
        self.path = state_path(folder, self.target) if folder is not None else ""
        self.lost: Finding | None = None
        self.memory = self.known = NOTHING
        self.taken: list[Snapshot] = []

    def remember(self) -> None:
        """Read what the check before left."""
        if self.path:
            self.memory, self.lost = recall(self.path)
            self.known = recalled(self.memory, time.time())

    def told(self) -> Told:
        """Judge what was read, and leave what the next check will want."""
        verdict, after = concluded(self.target, tuple(self.taken), self.ruleset, self.known)
        if not self.path:
            return verdict, verdict.state.severity > 0
        return left(self.path, self.memory, self.lost, verdict, after)


def _watched(questions: Sequence[Question], pace: Pace, folder: str | None) -> list[Told]:
    """Check targets in one loop: while some are judged the others are read."""
    from trtllm_kit.health.sources.gather import with_process
    from trtllm_kit.health.sources.http_many import Many
    from trtllm_kit.health.sources.prometheus_text import sample_of

    cases = [_Case(question, folder) for question in questions]
    many = Many(pace.timeout_seconds)
    for number, case in enumerate(cases):
        many.ask(number, case.target.url, case.target.access)
    made: dict[int, Told] = {}
    for came in many.answers():
        case = cases[came.number]
        if not case.taken:
            case.remember()
        before = case.taken[-1] if case.taken else pulse_of(case.known)
        deadline = time.monotonic() + pace.timeout_seconds - came.seconds
        sample = sample_of(came.answer, came.wall_seconds, came.monotonic_seconds, deadline, before)
        case.taken.append(with_process(case.target, sample))
        at = next_reading(case.taken, case.ruleset, pace, case.known)
        if at is None:
            made[came.number] = case.told()
        else:
            many.ask(came.number, case.target.url, case.target.access, at)
    return [made[number] for number in range(len(cases))]
