"""Progress that remembers, and progress that stops the run."""

from __future__ import annotations

import os
import signal


class Recorder:
    """Keeps the labels it was given and the sum of what was advanced under each."""

    def __init__(self) -> None:
        """Start empty."""
        self.done: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self._label = ""

    def start(self, label: str, total: float, unit: str) -> None:
        """Begin a label."""
        self._label = label
        self.done[label], self.totals[label] = 0.0, total

    def advance(self, amount: float) -> None:
        """Add to the label at work."""
        self.done[self._label] += amount

    def finish(self) -> None:
        """End the label."""


class Interrupting(Recorder):
    """Interrupts the run, as Ctrl-C does, once more than ``after`` was advanced under ``label``."""

    def __init__(self, label: str, after: float) -> None:
        """Take the place to stop at."""
        super().__init__()
        self._at = (label, after)

    def advance(self, amount: float) -> None:
        """Stop when the place is reached."""
        super().advance(amount)
        if self._label == self._at[0] and self.done[self._label] > self._at[1]:
            self.stop()

    def stop(self) -> None:
        """Raise what Ctrl-C raises."""
        raise KeyboardInterrupt


class Killing(Interrupting):
    """Kills the process, as the out-of-memory killer does."""

    def stop(self) -> None:
        """Send SIGKILL to itself."""
        os.kill(os.getpid(), signal.SIGKILL)
