"""``trtkit evaluate``: what a checkpoint lost of its source, layer by layer, and whether that is allowed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.options import GateOption, gate_of
from trtllm_kit.cli.plan import model_folder
from trtllm_kit.cli.session import Session, heading, table

if TYPE_CHECKING:
    from trtllm_kit.checkpoint.evaluate import Comparison
    from trtllm_kit.spec.quality import Quality

_SHOWN = 8
"""Layers of a report that is not verbose."""


def evaluate(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="The source: a Hugging Face folder or hub id.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with it, such as a converted checkpoint.")],
    *,
    text: Annotated[
        Path | None,
        typer.Option("--text", metavar="FILE", help="Text or JSONL to compare on.", show_default="the bundled text"),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", metavar="COUNT", min=2, help="Most tokens to compare.", show_default="1024"),
    ] = None,
    gate: GateOption = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page too.")] = None,
) -> int:
    """Compare checkpoint B with its source A on the CPU, and say which layers lose most. Exit 1 past a limit."""
    session: Session = context.obj
    asked = gate_of(gate)
    if html is not None:
        require_place(html)
    report = _compare(session, a, b, text, tokens)
    if html is not None:
        _write_page(html, report, asked, (a, b))
    return show_report(session, report, asked, (a, b))


def _compare(session: Session, a: str, b: str, text: Path | None, tokens: int | None) -> Comparison:
    from trtllm_kit.checkpoint.evaluate import MOST_TOKENS, compare
    from trtllm_kit.checkpoint.text import held_text, read

    words = held_text() if text is None else read(str(text), asked="--text")
    folders = model_folder(session, a), model_folder(session, b)
    return compare(*folders, words, session.progress(), MOST_TOKENS if tokens is None else tokens)


def require_place(path: Path) -> None:
    """Raise ``StorageError`` for a page that could not be written, before minutes of work for it."""
    from trtllm_kit.errors import storage_error

    folder = path.parent
    number = errno.EISDIR if path.is_dir() else errno.ENOENT if not folder.is_dir() else 0
    if not number and not os.access(path if path.exists() else folder, os.W_OK):
        number = errno.EACCES
    if number:
        raise storage_error(OSError(number, os.strerror(number), str(path)), "writing the report")


def _write_page(path: Path, report: Comparison, asked: Quality, names: tuple[str, str]) -> None:
    from trtllm_kit.checkpoint.report_html import html_page
    from trtllm_kit.errors import storage_error
    from trtllm_kit.files import replace_text

    try:
        replace_text(path, html_page(report, asked, names))
    except OSError as error:
        raise storage_error(error, "writing the report") from None


def show_report(session: Session, report: Comparison, asked: Quality, names: tuple[str, str]) -> int:
    """Show a report with its verdict; return the exit code."""
    from trtllm_kit.checkpoint.report import report_document

    document = {"a": names[0], "b": names[1]} | report_document(report, asked)
    session.result(document, lambda: report_text(report, asked, verbose=session.verbose))
    return 0 if document["verdict"] == "yes" else 1


def report_text(report: Comparison, asked: Quality, *, verbose: bool) -> str:
    """Lay out a report for reading: all figures, the worst layers, the verdict."""
    from trtllm_kit.checkpoint.gate import gate_failure, judge
    from trtllm_kit.checkpoint.loss import weakest
    from trtllm_kit.checkpoint.report import FIGURE_COLUMNS, LAYER_COLUMNS, figure_rows, layer_row, verdict_line

    shown = report.layers if verbose else weakest(report.layers, _SHOWN)
    lossy = len(weakest(report.layers, len(report.layers)))
    which = "all layers" if verbose else f"{len(shown)} of {lossy} that lose, the worst first"
    failure = gate_failure(report, asked)
    verdict = verdict_line(judge(report, asked)) if failure is None else str(failure)
    return "\n".join(
        [
            heading("Figures"),
            table(FIGURE_COLUMNS, figure_rows(report)),
            heading(f"Layers ({which})"),
            table(LAYER_COLUMNS, map(layer_row, shown)) if shown else "no layer loses anything",
            heading("Verdict"),
            verdict,
        ]
    )
