"""What every verb shares: where results, logs and progress go, and in which form.

Results go to stdout, as text or (``--json``) as one object; logs, errors and progress go to stderr. Tables are
boxed and coloured on a terminal and plain columns in a pipe.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trtllm_kit.errors import KitError, ListsProblems, storage_error
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.printable import printable
from trtllm_kit.progress import Progress

GLOBAL_FLAGS = frozenset({"--json", "--verbose", "-v", "--debug"})
_PATIENCE_SECONDS = 2.0
_PIPE_INTERVAL_SECONDS = 10.0
_COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.INFO: "36"}


def hoist_global_flags(arguments: Sequence[str]) -> list[str]:
    """Move the flags every verb shares to the front, so that they may stand after the verb."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    front = [word for word in arguments[:end] if word in GLOBAL_FLAGS]
    rest = [word for word in arguments[:end] if word not in GLOBAL_FLAGS]
    return [*front, *rest, *arguments[end:]]


@dataclass(frozen=True)
class Session:
    """One run of the command line."""

    json: bool
    verbose: bool
    debug: bool

    def result(self, document: dict[str, Any], text: Callable[[], str]) -> None:
        """Print a result: the document as JSON, or the text made from the same object."""
        say(json.dumps(document, indent=1, ensure_ascii=False) if self.json else text())

    def log(self, line: str) -> None:
        """Say something about the work on stderr."""
        if sys.stderr is not None:
            print(line.encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)  # noqa: T201

    def fail(self, error: KitError) -> None:
        """Show an error on stderr, and on stdout as JSON when that was asked for."""
        if self.json:
            say(json.dumps(error_document(error), indent=1, ensure_ascii=False))
        self.log(paint(str(error), "31", sys.stderr))

    def progress(self) -> Progress:
        """Return what shows the advance of long work on stderr."""
        return StderrProgress()


def say(text: str, end: str = "\n") -> None:
    """Write to stdout at once. A reader that went away ends no verb, and changes no exit code.

    Raises ``StorageError`` when the output cannot be written, as on a full disk.
    """
    if sys.stdout is None:  # closed by whoever started us
        return
    try:
        sys.stdout.write(text.encode(errors="backslashreplace").decode() + end)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise storage_error(error, "writing the result to stdout") from None


def error_document(error: KitError) -> dict[str, Any]:
    """Return an error as the object that ``--json`` prints."""
    document = {"code": error.code, "what": error.what, "why": error.why, "try": error.hint}
    listed = error.problems if isinstance(error, ListsProblems) else ()
    return {"error": document | ({"problems": list(listed)} if listed else {})}


def paint(text: str, colour: str, stream: Any = None) -> str:
    """Colour text for a terminal; plain elsewhere."""
    return f"\033[{colour}m{text}\033[0m" if is_terminal(stream or sys.stdout) else text


def is_terminal(stream: Any) -> bool:
    """Whether a standard stream is a terminal; one that was closed before we started is None."""
    return stream is not None and stream.isatty()


def heading(text: str) -> str:
    """Make a section heading."""
    return paint(text, "1")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows: a rich table on a terminal, aligned columns without colour in a pipe."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if is_terminal(sys.stdout):
        return _rich_table(headers, cells)
    widths = [max(len(line[column]) for line in [list(headers), *cells]) for column in range(len(headers))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in [headers, *cells]
    ]
    return "\n".join(line.rstrip() for line in lines)


def show_findings(findings: Sequence[Finding]) -> str:
    """Lay out findings, the gravest first."""
    if not findings:
        return "no findings"
    order = list(Severity)
    blocks = []
    for finding in sorted(findings, key=lambda one: order.index(one.severity)):
        label = paint(f"{finding.severity.upper()} {finding.rule}", _COLOURS[finding.severity])
        texts = [printable(text) for text in (finding.message, finding.compared, finding.suggestion)]
        lines = [f"{label}: {texts[0]}", f"  compared: {texts[1]}", f"  try: {texts[2]}"]
        blocks.append("\n".join(line for line in lines if not line.endswith(": ")))
    return "\n".join(blocks)


class StderrProgress:
    """Shows nothing for two seconds, then a line that renews itself (terminal) or one line each ten seconds (pipe)."""

    def __init__(self) -> None:
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
        pause = 0.2 if is_terminal(sys.stderr) else _PIPE_INTERVAL_SECONDS
        if now - self._started >= _PATIENCE_SECONDS and now - self._shown >= pause:
            self._shown = now
            self._show(now - self._started)

    def finish(self) -> None:
        """Clear the line."""
        if is_terminal(sys.stderr) and self._shown > self._started:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _show(self, seconds: float) -> None:
        if sys.stderr is None:
            return
        share = min(self._done / self._total, 1.0) if self._total else 0.0
        left = f", {seconds / share - seconds:.0f} s left" if share > 0.01 else ""
        line = f"{self._label}: {share * 100:.0f} % of {_amount(self._total, self._unit)} in {seconds:.0f} s{left}"
        if self._unit == "seconds":  # a time-out is no amount of work
            line = f"{self._label}: {seconds:.0f} s (at most {self._total:.0f} s)"
        start, end = ("\r\033[K", "") if is_terminal(sys.stderr) else ("", "\n")
        sys.stderr.write(f"{start}{line}{end}")
        sys.stderr.flush()


def _amount(total: float, unit: str) -> str:
    from trtllm_kit.units import format_bytes

    return format_bytes(total) if unit == "bytes" else f"{total:.0f} {unit}"


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, name in enumerate(headers):
        grid.add_column(name, overflow="fold", no_wrap=number == 0)  # the first column is what people copy
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console = Console()
    with console.capture() as captured:
        console.print(grid)
    return captured.get().strip("\n")
