"""The process table: whether a process lives."""

from __future__ import annotations

import os

_GONE_STATES = frozenset(("", "Z", "X", "x"))


def is_running(pid: int) -> bool:
    """Whether a process of this machine lives; a zombie does not, nor what is no process's number."""
    if pid <= 0:  # which would ask a group, or everybody
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return _state(pid) not in _GONE_STATES


def _state(pid: int) -> str:
    """Return the letter of the process's state; ``?`` on a system without /proc."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # pathlib: 4 ms
            return file.read().rpartition(")")[2].strip()[:1]
    except OSError:
        return "?"
