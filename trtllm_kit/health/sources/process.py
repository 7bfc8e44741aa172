"""The process table: whether a process lives."""

from __future__ import annotations

import os
from pathlib import Path

_GONE_STATES = frozenset(("", "Z", "X", "x"))


def is_running(pid: int) -> bool:
    """Whether a process of this machine lives; a zombie does not."""
    if not Path("/proc/self").exists():
        return _answers_signal(pid)
    try:
        status = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return False
    state = status.rpartition(")")[2].strip()[:1]
    return state not in _GONE_STATES


def _answers_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
