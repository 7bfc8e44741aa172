"""Ends this process when Triton is gone. A stub whose model has threads of its own would live on for ever.

A thread watches the parent. That is not enough for metric calls: they wait for Triton with Python's global lock
held, so on a dead server no other thread runs any more. Those calls are guarded by a timer outside Python.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_CHECK_SECONDS = 0.2
_PATIENCE_SECONDS = 10
"""How long a metric call may take; on a live server it takes some 50 µs."""
_parent = os.getppid()
_one_at_a_time = threading.Lock()


def watch_parent() -> None:
    """Begin to watch."""
    threading.Thread(target=_watch, name="lifeline", daemon=True).start()


@contextmanager
def metric_calls() -> Iterator[None]:
    """Guard the metric calls inside: they end this process when Triton is gone, rather than wait for ever."""
    with _one_at_a_time:
        _end_without_parent()
        faulthandler.dump_traceback_later(_PATIENCE_SECONDS, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def _watch() -> None:
    while True:
        _end_without_parent()
        time.sleep(_CHECK_SECONDS)


def _end_without_parent() -> None:
    if os.getppid() != _parent:
        os._exit(0)
