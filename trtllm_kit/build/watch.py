"""Reads a program's log while it is written, and tells how far the program is."""

from __future__ import annotations

from typing import BinaryIO

from trtllm_kit.build.step import Run
from trtllm_kit.progress import Progress
from trtllm_kit.upstream.build_errors import WRITTEN, phase_of

_ENGINE = ".engine"


class Watch:
    """Follows one run: its phase by the lines of its log, its share by the rank files that are on disk."""

    def __init__(self, lines: BinaryIO, progress: Progress, step: Run) -> None:
        """Follow the log from where ``lines`` stands; programs of ours say no phases."""
        self._lines, self._progress = lines, progress
        self._named = step.release is not None
        self._ranks = sum(name.endswith(_ENGINE) for name in step.outputs)
        self._rest, self._done, self._phase = b"", 0, ""
        if self._named:
            self._progress.start("build: the builder starts", self._ranks, "ranks")

    def look(self) -> None:
        """Read what was written since the last look."""
        if not self._named:
            return
        *whole, self._rest = (self._rest + self._lines.read()).split(b"\n")
        for line in whole:
            self._take(line.decode("utf-8", errors="replace"))
        self._progress.advance(0)

    def end(self) -> None:
        """Read the rest and end the piece of work."""
        if self._named:
            self.look()
            self._progress.finish()

    def _take(self, line: str) -> None:
        phase = phase_of(line)
        if phase is None:
            return
        if phase.name == WRITTEN:
            self._done += 1
            self._progress.advance(1)
        if phase.label != self._phase:
            self._phase = phase.label
            self._progress.start(f"build: {phase.label}", self._ranks, "ranks")
            self._progress.advance(self._done)
