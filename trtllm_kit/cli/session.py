"""What every verb shares: where results, logs and progress go, and in which form.

Results go to stdout, as text or (``--json``) as one object; logs, errors and progress go to stderr. Tables are
boxed and coloured on a terminal and plain columns in a pipe.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trtllm_kit.cli.outlet import Outlet
from trtllm_kit.cli.streams import holds_every_letter, is_terminal, paint, say
from trtllm_kit.errors import KitError, ListsProblems, StorageError
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.printable import printable
from trtllm_kit.progress import Progress

GLOBAL_FLAGS = frozenset({"--json", "--verbose", "-v", "--debug"})
_COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.INFO: "36"}


def hoist_global_flags(arguments: Sequence[str]) -> list[str]:
    """Move the flags every verb shares to the front, so that they may stand after the verb."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    front = [word for word in arguments[:end] if word in GLOBAL_FLAGS]
    rest = [word for word in arguments[:end] if word not in GLOBAL_FLAGS]
    return [*front, *rest, *arguments[end:]]


Result = dict[str, Any] | Callable[[], dict[str, Any]]
"""A document, or what makes one for those who ask for JSON."""


def made(document: Result) -> dict[str, Any]:
    """Return the document of a result."""
    return document() if callable(document) else document


@dataclass(frozen=True)
class Session:
    """One run of the command line."""

    json: bool
    verbose: bool
    debug: bool
    outlet: Outlet = field(default_factory=Outlet)

    def result(self, document: Result, text: Callable[[], str]) -> None:
        """Print a result: the document as JSON (unattended: on one line), or the text made from the same object."""
        shown = self._as_json(made(document)) if self.json else text()
        self.outlet.note("result", shown)
        say(shown)

    def log(self, line: str) -> None:
        """Say something about the work on stderr; nothing when nobody attends."""
        self.outlet.tell(line)

    def fail(self, error: KitError) -> None:
        """Show an error on stderr, and on stdout as JSON when that was asked for."""
        self.outlet.complain(str(error), paint(str(error), "31", sys.stderr))
        if self.json:
            with contextlib.suppress(StorageError):  # what went wrong first keeps its exit code
                say(self._as_json(error_document(error)))

    def progress(self) -> Progress:
        """Return what shows the advance of long work on stderr and in the log file."""
        return self.outlet.progress()

    def _as_json(self, document: dict[str, Any]) -> str:
        indent = None if self.outlet.unattended else 1
        return json.dumps(document, indent=indent, ensure_ascii=not holds_every_letter(sys.stdout))


def error_document(error: KitError) -> dict[str, Any]:
    """Return an error as the object that ``--json`` prints."""
    document = {"code": error.code, "what": error.what, "why": error.why, "try": error.hint}
    listed = error.problems if isinstance(error, ListsProblems) else ()
    return {"error": document | ({"problems": list(listed)} if listed else {})}


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
