"""How long work tells of itself; the command line decides whether and how to show it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the advance of one piece of work at a time."""

    def start(self, label: str, total: float, unit: str) -> None:
        """Begin a piece of work of ``total`` ``unit`` (``"bytes"``, ``"layers"``, ``"seconds"`` ...)."""

    def advance(self, amount: float) -> None:
        """Report that ``amount`` more is done."""

    def finish(self) -> None:
        """End the piece of work."""


class Silent:
    """Shows nothing."""

    def start(self, label: str, total: float, unit: str) -> None:
        """Ignore the start."""

    def advance(self, amount: float) -> None:
        """Ignore the advance."""

    def finish(self) -> None:
        """Ignore the end."""
