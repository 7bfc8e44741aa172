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

    To be called before any thread runs. What a copy could not do is done here, all of it where there can be none.
    """
    shares = [items[number::copies] for number in range(max(1, copies))]
    others: list[_Copy | None] = []
    try:
        others.extend(_copy(work, share) for share in shares[1:])
        results = [work(shares[0])]
        for number, share in enumerate(shares[1:]):
            made = _result(others[number])
            others[number] = None
            results.append(work(share) if made is None else made)
    finally:  # of those that are left something went wrong here
        for pid, pipe in filter(None, others):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(pipe)
    ordered: list[Any] = [None] * len(items)
    for number, result in enumerate(results):
        ordered[number::copies] = result
    return ordered


_Copy = tuple[int, int]
"""A copy's process, and the pipe from which its result is read."""


def _copy(work: Callable[[Sequence[Item]], list[Made]], share: Sequence[Item]) -> _Copy | None:
    """Start a copy that does a share; None where the system has no room for one."""
    try:
        mine, its = os.pipe()
    except OSError:
        return None
    try:
        pid = os.fork()
    except OSError:
        os.close(mine)
        os.close(its)
        return None
    if pid == 0:
        _do(work, share, its)
    os.close(its)
    return pid, mine


def _do(work: Callable[[Sequence[Item]], list[Made]], share: Sequence[Item], pipe: int) -> NoReturn:
    """Do a share in a copy, and end it without the endings of the process it is a copy of."""
    code = 1
    try:
        import pickle

        data = memoryview(pickle.dumps(work(share), pickle.HIGHEST_PROTOCOL))
        while data:
            data = data[os.write(pipe, data) :]
        code = 0
    finally:
        os._exit(code)


def _result(copy: _Copy | None) -> list[Any] | None:
    """Wait for what a copy made; None where it ended without, or never began."""
    if copy is None:
        return None
    import pickle

    pid, pipe = copy
    with open(pipe, "rb", closefd=False) as file:  # it has no path
        data = file.read()
    os.close(pipe)
    _, status = os.waitpid(pid, 0)
    made: list[Any] | None = pickle.loads(data) if status == 0 else None  # noqa: S301  # our own copy wrote it
    return made
