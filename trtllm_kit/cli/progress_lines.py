"""How the command line shows the advance of long work: on stderr, and more rarely in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from trtllm_kit.cli.streams import is_terminal, to_stderr
from trtllm_kit.progress import Progress
from trtllm_kit.units import format_bytes

_PATIENCE_SECONDS = 2.0
_PIPE_INTERVAL_SECONDS = 10.0
_LOG_INTERVAL_SECONDS = 60.0
_TERMINAL_INTERVAL_SECONDS = 0.2


class Lines:
    """Says nothing for two seconds, then one line each ``interval`` seconds, for as long as the work takes."""

    def __init__(self, write: Callable[[str], None], interval: float) -> None:
        """Hand each line to ``write``."""
        self._write, self._interval = write, interval
        self._label, self._unit, self._total, self._done = "", "", 0.0, 0.0
        self._started = self._shown = 0.0

    def start(self, label: str, total: float, unit: str) -> None:
        """Begin a piece of work."""
        self._label, self._unit, self._total, self._done = label, unit, total, 0.0
        self._started = self._shown = time.monotonic()

    def advance(self, amount: float) -> None:
        """Count more work and show it when it is time to."""
        self._done += amount
        now = time.monotonic()
        if now - self._started >= _PATIENCE_SECONDS and now - self._shown >= self._interval:
            self._shown = now
            self._write(self._line(now - self._started))

    def finish(self) -> None:
        """End the piece of work."""

    def _line(self, seconds: float) -> str:
        if self._unit == "seconds":  # a time-out is no amount of work
            return f"{self._label}: {seconds:.0f} s (at most {self._total:.0f} s)"
        share = min(self._done / self._total, 1.0) if self._total else 0.0
        left = f", {seconds / share - seconds:.0f} s left" if share > 0.01 else ""
        rate = f", {format_bytes(self._done / seconds)}/s" if self._unit == "bytes" and seconds else ""
        done = f"{share * 100:.0f} % of {_amount(self._total, self._unit)}"
        return f"{self._label}: {done} in {seconds:.0f} s{rate}{left}"


class StderrProgress(Lines):
    """On a terminal one line that renews itself, in a pipe one line each ten seconds."""

    def __init__(self) -> None:
        """Look whether stderr is a terminal."""
        self._terminal = is_terminal(sys.stderr)
        super().__init__(self._show, _TERMINAL_INTERVAL_SECONDS if self._terminal else _PIPE_INTERVAL_SECONDS)

    def finish(self) -> None:
        """Clear the line."""
        if self._terminal and self._shown > self._started:
            to_stderr("\r\033[K", end="")

    def _show(self, line: str) -> None:
        start, end = ("\r\033[K", "") if self._terminal else ("", "\n")
        to_stderr(start + line, end)


def log_progress(write: Callable[[str], None]) -> Progress:
    """Return what writes one line a minute."""
    return Lines(write, _LOG_INTERVAL_SECONDS)


class Together:
    """Tells several of the same work."""

    def __init__(self, receivers: Sequence[Progress]) -> None:
        """Tell these, in order."""
        self._receivers = tuple(receivers)

    def start(self, label: str, total: float, unit: str) -> None:
        """Begin a piece of work."""
        for receiver in self._receivers:
            receiver.start(label, total, unit)

    def advance(self, amount: float) -> None:
        """Report that ``amount`` more is done."""
        for receiver in self._receivers:
            receiver.advance(amount)

    def finish(self) -> None:
        """End the piece of work."""
        for receiver in self._receivers:
            receiver.finish()


def _amount(total: float, unit: str) -> str:
    return format_bytes(total) if unit == "bytes" else f"{total:.0f} {unit}"
