"""Work shared among the cores by forked copies of this process, which hold what is imported already."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_out(work: Callable[[Sequence[Item]], list[Made]], items: Sequence[Item], copies: int) -> list[Made]:
    """Do the work on a share of the items in each of some processes; returns the results in their order.

    To be called before any thread runs. Where a process is killed, all is done here.
    """
    shares = [items[number::copies] for number in range(copies)]
    _WAITING[:] = [(work, share) for share in shares[1:]]
    try:
        with ProcessPoolExecutor(len(_WAITING), multiprocessing.get_context("fork")) as pool:
            others = [pool.submit(_do, number) for number in range(len(_WAITING))]
            results = [work(shares[0]), *(other.result() for other in others)]
    except BrokenProcessPool:
        return work(items)
    finally:
        _WAITING.clear()
    ordered: list[Made | None] = [None] * len(items)
    for number, made in enumerate(results):
        ordered[number::copies] = made
    return [one for one in ordered if one is not None]


_WAITING: list[tuple[Callable[[Sequence[Any]], list[Any]], Sequence[Any]]] = []
"""What forked processes find in their memory: the work and their shares."""


def _do(number: int) -> list[Any]:
    work, share = _WAITING[number]
    return work(share)
