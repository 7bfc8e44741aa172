"""Where one run tells of itself: on stderr, and in a log file when it was given one."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from trtllm_kit.cli.log_file import LogFile
from trtllm_kit.cli.progress_lines import StderrProgress, Together, log_progress
from trtllm_kit.cli.streams import to_stderr
from trtllm_kit.progress import Progress
from trtllm_kit.units import format_seconds


@dataclass
class Outlet:
    """What a run says beside its result."""

    unattended: bool = False
    """Nothing goes to stderr but what went wrong."""
    log: LogFile | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    """Names this run in logs."""
    _began: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        """Say something about the work."""
        self.note("info", text)
        if not self.unattended:
            to_stderr(text)

    def complain(self, text: str, shown: str = "") -> None:
        """Say what went wrong, to everyone; ``shown`` is the same in colour, for a terminal."""
        self.note("error", text)
        to_stderr(text if self.unattended else shown or text)

    def note(self, level: str, text: str) -> None:
        """Write to the log file alone. One that fails under way ends no work, and is told of once."""
        if self.log is None:
            return
        try:
            self.log.write(level, text)
        except OSError as error:
            path, self.log = self.log.path, None
            self.complain(f"warning: {path} can be written no more, the run goes on without a log: {error.strerror}")

    def progress(self) -> Progress:
        """Return what shows the advance of long work."""
        receivers: list[Progress] = [] if self.unattended else [StderrProgress()]
        if self.log is not None:
            receivers.append(log_progress(lambda line: self.note("progress", line)))
        return Together(receivers)

    def seconds(self) -> float:
        """Return how long the run has taken up to now."""
        return time.monotonic() - self._began

    def end(self, code: int) -> None:
        """Note how the run ended."""
        self.note("info", f"ended with exit code {code} after {format_seconds(self.seconds())}")
