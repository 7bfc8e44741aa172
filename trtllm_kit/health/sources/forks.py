"""Work shared among the cores by forked copies of this process, which hold what is imported already."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_out(work: Callable[[Sequence[Item]], list[Made]], items: Sequence[Item], copies: int) -> list[Made]:
    """Do the work on a share of the items in each of some copies of this process; returns the results in their order.

    To be called before any thread runs. What a copy does not return, because it was killed, is done here.
    """
    shares = [items[number::copies] for number in range(copies)]
    children = [_forked(work, share) for share in shares[1:]]
    results = [work(shares[0])]
    for (child, pipe), share in zip(children, shares[1:], strict=True):
        with os.fdopen(pipe, "rb") as file:
            data = file.read()
        os.waitpid(child, 0)
        results.append(pickle.loads(data) if data else work(share))  # noqa: S301  # our own copy wrote it
    ordered: list[Made | None] = [None] * len(items)
    for number, made in enumerate(results):
        ordered[number::copies] = made
    return [one for one in ordered if one is not None]


def _forked(work: Callable[[Sequence[Item]], list[Made]], share: Sequence[Item]) -> tuple[int, int]:
    """Start a copy; returns its number and the end of the pipe on which its results come."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        os.close(reading)
        data = pickle.dumps(work(share))
        with os.fdopen(writing, "wb") as file:
            file.write(data)
    finally:
        os._exit(0)  # nothing of the copied process is to happen twice
