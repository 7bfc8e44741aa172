"""Whether the client itself was late: how long a piece may have waited in the system before it was stamped.

The loop waits for the network in one place, and a piece is stamped with the moment at which the system said there that
it had come, however many others are read before it. When the loop had to wait for that, the stamp is right; when it did
not, the piece may have come at any time since the loop last looked, and that is the bound which is kept of each piece.
Beside it a clock ticks: a tick that is late tells that the machine gave the client's core to others.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from dataclasses import dataclass
from typing import Any

from trtllm_kit.bench.client import clock
from trtllm_kit.bench.histogram import Histogram

TICK_SECONDS = 0.02
ROUNDING_SECONDS = 1e-3
"""What the system's timer rounds up to."""
MEDIAN_LIMIT, P99_LIMIT = 0.5e-3, 2.5e-3
"""Seconds by which a client that may be believed is late: a gap has two ends, and may be off by 1 ms and 5 ms."""
BUSY_LIMIT = 0.85
"""Share of a core from which on the thread is full."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How late the client was at most, seconds, and how much of a core its thread took."""

    median: float
    p99: float
    most: float
    """Bounds on how late pieces were stamped."""
    woken: float
    """By how much the machine woke it late, p99 of its ticks, beyond the timer's rounding."""
    busy: float
    """Share of the time that its thread worked, 0 to 1."""

    @property
    def bottleneck(self) -> str:
        """Why the figures are the client's rather than the server's; empty when they are not."""
        for late, limit, where in (
            (self.median, MEDIAN_LIMIT, "late at the median"),
            (self.p99, P99_LIMIT, "late at p99"),
            (self.woken, P99_LIMIT, "woken late at p99: other programs have its core"),
        ):
            if late > limit:
                return f"up to {late * 1e3:.1f} ms {where} (limit {limit * 1e3:g} ms)"
        return f"its thread was busy {self.busy:.0%} of the time" if self.busy > BUSY_LIMIT else ""


class WatchedSelector(selectors.DefaultSelector):
    """The system's selector, which knows when it returned, and since when what it returned may have been there."""

    since = 0.0
    returned = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Look at the network, and wait for it only when nothing is there: what had to be waited for came just now.

        How long one waiting call takes does not tell the two apart, on a machine that gives the core to others.
        """
        events = super().select(0)
        self.since = self.returned
        if not events and timeout != 0:
            events = super().select(timeout)
            self.since = clock()
        self.returned = clock()
        return events


class LagWatch:
    """Watches a running loop until it is stopped."""

    def __init__(self, selector: WatchedSelector) -> None:
        """Begin in the running loop, which waits on that selector."""
        self._selector = selector
        self._pieces, self._ticks = Histogram(), Histogram()
        self._begun, self._cpu = clock(), time.thread_time()
        self._task = asyncio.ensure_future(self._tick())

    def arrived(self) -> float:
        """Return when what is being read had come, a reading of the clock; and keep how late that may be."""
        stamp = self._selector.returned
        self._pieces.add(stamp - self._selector.since)
        return stamp

    async def _tick(self) -> None:
        while True:
            due = clock() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._ticks.add(clock() - due - ROUNDING_SECONDS)

    def stop(self) -> Lag:
        """End; return how late the client was."""
        self._task.cancel()
        passed = clock() - self._begun
        busy = (time.thread_time() - self._cpu) / passed if passed > 0 else 0.0
        pieces = self._pieces
        return Lag(pieces.at(0.5), pieces.at(0.99), pieces.most, self._ticks.at(0.99), busy)
