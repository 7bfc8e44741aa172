"""Watches a process from inside: how long each phase of its work takes, and how much anonymous memory it has."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

_INTERVAL_SECONDS = 0.02
_STATUS = Path("/proc/self/status")


@dataclass
class Phase:
    """A part of the work."""

    label: str
    unit: str = ""
    done: float = 0.0
    seconds: float = 0.0
    anonymous_bytes: int = 0
    """Most of RssAnon while it lasted: memory of the process that no file stands behind."""


@dataclass
class Watch:
    """A ``Progress`` that keeps the phases, and a context within which memory is sampled every 20 ms."""

    phases: list[Phase] = field(default_factory=lambda: [Phase("before the first byte")])
    _begun: float = field(default_factory=time.perf_counter)

    def start(self, label: str, total: float, unit: str) -> None:  # noqa: ARG002  # the total is no figure here
        """Begin a phase."""
        self._next(Phase(label, unit))

    def advance(self, amount: float) -> None:
        """Count what is done of it."""
        self.phases[-1].done += amount

    def finish(self) -> None:
        """End it; what comes until the next has a phase of its own."""
        self._next(Phase(f"after {self.phases[-1].label}"))

    def _next(self, phase: Phase) -> None:
        now = time.perf_counter()
        self.phases[-1].seconds = now - self._begun
        self._begun = now
        self.phases.append(phase)

    def __enter__(self) -> Watch:
        """Begin to sample."""
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._ended.set()
        self._sampler.join()
        self.phases[-1].seconds = time.perf_counter() - self._begun

    def _sample(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            phase = self.phases[-1]
            phase.anonymous_bytes = max(phase.anonymous_bytes, anonymous_bytes())

    def told(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "seconds": sum(phase.seconds for phase in self.phases),
            "anonymous_bytes": max(phase.anonymous_bytes for phase in self.phases),
            "phases": [asdict(phase) for phase in self.phases],
        }


def anonymous_bytes() -> int:
    """Return RssAnon of this process, 0 where the kernel does not tell it."""
    lines = _STATUS.read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0) * 1024
