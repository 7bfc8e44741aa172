"""``trtkit migrate checkpoint``: rank files of ``trtllm-build`` back to a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.options import DryRunOption, LockWaitOption
from trtllm_kit.cli.session import Session, show_findings, table
from trtllm_kit.errors import UsageError
from trtllm_kit.staging import LOCK_SECONDS
from trtllm_kit.units import counted, format_bytes

if TYPE_CHECKING:
    from trtllm_kit.checkpoint.brought_back import Brought
    from trtllm_kit.findings import Finding

FolderArgument = Annotated[
    Path,
    typer.Argument(metavar="TRTLLM_DIR", help="Rank files of convert_checkpoint.py, quantize.py or trtkit convert."),
]
OutArgument = Annotated[
    Path | None, typer.Argument(metavar="OUT", help="Folder to make; may be left out with --dry-run.")
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option("--tokenizer", metavar="FOLDER", help="Hugging Face folder of the model, whose tokenizer is copied."),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Move a folder OUT that trtkit did not make out of the way, and name its place.")
]


def checkpoint(
    context: typer.Context,
    folder: FolderArgument,
    out: OutArgument = None,
    *,
    tokenizer: TokenizerOption = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    lock_wait: LockWaitOption = LOCK_SECONDS,
) -> int:
    """Bring the weights of a TensorRT-LLM checkpoint back into a Hugging Face folder that the PyTorch backend loads.

    Any split over ranks is undone exactly; what cannot be undone is refused or told with the numbers.
    """
    session: Session = context.obj
    if tokenizer is not None and not tokenizer.is_dir():
        raise UsageError(
            f"--tokenizer {tokenizer} is no folder",
            why="the tokenizer is several files of the model's Hugging Face folder",
            hint="--tokenizer FOLDER with tokenizer.json in it",
        )
    if dry_run:
        return _dry(session, folder, tokenizer)
    if out is None:
        raise UsageError(
            "trtkit migrate checkpoint needs a folder to make",
            why="only --dry-run writes nothing",
            hint=f"trtkit migrate checkpoint {folder} OUT",
        )
    return _made(session, folder, out, tokenizer, force=force, lock_seconds=lock_wait)


def _made(
    session: Session, folder: Path, out: Path, tokenizer: Path | None, *, force: bool, lock_seconds: float
) -> int:
    """Make the folder and show it."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.checkpoint.from_ranks import migrate
    from trtllm_kit.cli.made import Besides, show_made

    if force:
        _move_away(session, out)
    migrated = migrate(folder, out, session.progress(), tokenizer, lock_seconds=lock_seconds)
    if migrated.resumed:
        session.log("went on with the work of an interrupted run")
    if not migrated.up_to_date:
        append_log(out, {"verb": "migrate", "digest": migrated.manifest.digest, "run": session.outlet.run})
    besides = Besides({"report": migrated.report})
    show_made(session, out, migrated.manifest, up_to_date=migrated.up_to_date, besides=besides)
    return 0


def _move_away(session: Session, out: Path) -> None:
    """Rename a folder that is no work of trtkit's; nothing of it is lost."""
    from trtllm_kit.artifact import MANIFEST

    if not out.is_dir() or (out / MANIFEST).is_file() or not any(out.iterdir()):
        return
    numbered = (out.with_name(f"{out.name}.before-{number}") for number in range(1, 10_000))
    place = next(path for path in numbered if not path.exists())
    out.rename(place)
    session.log(f"{out} was moved to {place}")


def _dry(session: Session, folder: Path, tokenizer: Path | None) -> int:
    """Show every tensor that would be written, and what was noticed."""
    from trtllm_kit.checkpoint.from_ranks import decide

    brought = decide(folder, tokenizer)
    rows = _rows(brought)
    document = {"tensors": rows, "report": brought.report}
    session.result(document, lambda: _dry_text(brought, rows))
    return 0


def _rows(brought: Brought) -> list[dict[str, Any]]:
    joined = brought.weights.joined
    return [
        {
            "tensor": step.name,
            "dtype": step.dtype,
            "shape": list(step.shape),
            "file": step.file,
            "format": step.format,
            "part": step.part,
            "source": joined[step.name].origin,
        }
        for step in brought.steps
    ]


def _dry_text(brought: Brought, rows: list[dict[str, Any]]) -> str:
    cells = [
        (row["tensor"], row["dtype"], "x".join(map(str, row["shape"])) or "scalar", row["format"], row["source"])
        for row in rows
    ]
    size, files = format_bytes(sum(step.nbytes for step in brought.steps)), len({step.file for step in brought.steps})
    total = f"{counted(len(rows), 'tensor')}, {size}, {counted(files, 'weight file')}; nothing was written"
    shown = table(("tensor", "dtype", "shape", "format", "from"), cells)
    return f"{shown}\n{total}{_findings_text(_findings(brought.report))}"


def _findings(report: dict[str, Any]) -> list[Finding]:
    from trtllm_kit.findings import Finding

    return [Finding.model_validate(found) for found in report["findings"]]


def _findings_text(findings: list[Finding]) -> str:
    return f"\n{show_findings(findings)}" if findings else ""
