"""Work shared among the cores by forked copies of this process, which hold what is imported already.

The standard library's pools would take longer to import than two hundred checks on one core.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_out(work: Callable[[Sequence[Item]], list[Made]], items: Sequence[Item], copies: int) -> list[Made]:
    """Do the work on a share of the items in each of some processes; returns the results in their order.

    To be called before any thread runs. What a copy could not do is done here.
    """
    shares = [items[number::copies] for number in range(max(1, copies))]
    others = [_copy(work, share) for share in shares[1:]]
    try:
        results = [work(shares[0])]
        for (pid, pipe), share in zip(list(others), shares[1:], strict=True):
            made = _result(pid, pipe)
            others.remove((pid, pipe))
            results.append(work(share) if made is None else made)
    finally:  # of those that are left something went wrong here
        for pid, pipe in others:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(pipe)
    ordered: list[Any] = [None] * len(items)
    for number, result in enumerate(results):
        ordered[number::copies] = result
    return ordered


def _copy(work: Callable[[Sequence[Item]], list[Made]], share: Sequence[Item]) -> tuple[int, int]:
    """Start a copy that does a share; returns its process and the pipe from which its result is read."""
    mine, its = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(mine)
        _do(work, share, its)
    os.close(its)
    return pid, mine


def _do(work: Callable[[Sequence[Item]], list[Made]], share: Sequence[Item], pipe: int) -> NoReturn:
    """Do a share in a copy, and end it without the endings of the process it is a copy of."""
    import pickle

    code = 1
    try:
        data = memoryview(pickle.dumps(work(share), pickle.HIGHEST_PROTOCOL))
        while data:
            data = data[os.write(pipe, data) :]
        code = 0
    finally:
        os._exit(code)


def _result(pid: int, pipe: int) -> list[Any] | None:
    """Wait for what a copy made; None where it ended without."""
    import pickle

    with open(pipe, "rb", closefd=False) as file:  # it has no path
        data = file.read()
    os.close(pipe)
    _, status = os.waitpid(pid, 0)
    made: list[Any] | None = pickle.loads(data) if status == 0 else None  # noqa: S301  # our own copy wrote it
    return made
