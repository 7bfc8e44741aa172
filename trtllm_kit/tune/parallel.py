"""Simulations on all cores: processes that are forked with the work in memory, and send only what they saw."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Clock
from trtllm_kit.tune.points import Seen
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.simulated import Effort, Load, outcome_of, seen_of

WORTH_A_PROCESS = 16
"""Fewer simulations than this for each process are done before it has begun."""
MOST_PROCESSES = 8


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation."""

    subject: Subject
    clock: Clock
    question: Question
    load: Load
    effort: Effort


def see_all(tasks: Sequence[Task]) -> list[Seen]:
    """Simulate every task; the same tasks give the same figures however many cores there are."""
    processes = min(len(os.sched_getaffinity(0)), len(tasks) // WORTH_A_PROCESS, MOST_PROCESSES)
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [see(task) for task in tasks]
    _WAITING[:] = tasks
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _leave_signals_alone)
    try:
        return list(pool.map(_see_numbered, range(len(tasks)), chunksize=1))
    except BrokenProcessPool:  # one was killed, as the kernel does when memory ends
        return [see(task) for task in tasks]
    finally:
        _WAITING.clear()
        pool.shutdown(cancel_futures=True)


def see(task: Task) -> Seen:
    """Simulate one task."""
    outcome = outcome_of(task.subject, task.clock, task.question, task.load, task.effort)
    return seen_of(outcome, task.question, task.load)


_WAITING: list[Task] = []
"""What forked processes find in their memory."""


def _leave_signals_alone() -> None:
    """Let Ctrl-C be the parent's business, and SIGTERM end the process without a word."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _see_numbered(number: int) -> Seen:
    return see(_WAITING[number])
