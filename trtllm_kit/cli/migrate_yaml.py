"""``trtkit migrate yaml``: LLM-API YAML and trtllm-serve commands from one release to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.session import Session, table
from trtllm_kit.errors import OutputOccupied, UsageError, storage_error
from trtllm_kit.printable import printable

if TYPE_CHECKING:
    from trtllm_kit.migrate.release.change import Row
    from trtllm_kit.migrate.release.yaml_file import Rewritten

FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="LLM-API YAML, or a shell script that calls trtllm-serve.", show_default=False),
]
FromOption = Annotated[str, typer.Option("--from", metavar="V", help="TensorRT-LLM release that it is for.")]
ToOption = Annotated[str, typer.Option("--to", metavar="V", help="TensorRT-LLM release that it becomes one for.")]
CommandOption = Annotated[
    str | None, typer.Option("--command", metavar="TEXT", help="A trtllm-serve command line, in the place of FILE.")
]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write the result to.")]
InPlaceOption = Annotated[bool, typer.Option("--in-place", help="Write the result over FILE.")]
CheckOption = Annotated[
    bool,
    typer.Option("--check", help="Write nothing; exit 1 when anything would change, is lost or was not read."),
]
DefaultsOption = Annotated[
    bool,
    typer.Option("--new-defaults", help="Let defaults change with the release, and do not write the old ones down."),
]
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
_MOST_VALUE = 40


def yaml(
    context: typer.Context,
    file: FileArgument = None,
    *,
    source: FromOption,
    target: ToOption,
    command: CommandOption = None,
    out: OutOption = None,
    in_place: InPlaceOption = False,
    check: CheckOption = False,
    new_defaults: DefaultsOption = False,
) -> int:
    """Rewrite LLM-API YAML or a trtllm-serve command for another release. Exit 1: something is lost, or has no way."""
    session: Session = context.obj
    _asked(file, command, out, in_place=in_place, check=check)
    between = (_release("--from", source), _release("--to", target))
    made = (
        _command(command, between, keep=not new_defaults)
        if command is not None
        else _file(file, between, keep=not new_defaults)
    )
    bad = bool(made.lost) or made.is_refused or made.was_refused
    place = None if check else file if in_place else out
    written = place is not None and not made.is_refused and (made.changed or not in_place)
    if place is not None and written:
        _write(place, made.text, over=in_place)
    name = str(file) if file is not None else "--command"
    session.result(
        lambda: _document(name, between, made, str(place) if written else None),
        lambda: _text(name, between, made, place if written else None, show=place is None and not check),
    )
    return 1 if bad or (check and (made.changed or made.unread)) else 0


def _asked(file: Path | None, command: str | None, out: Path | None, *, in_place: bool, check: bool) -> None:
    if (file is None) == (command is None):
        raise UsageError(
            "FILE and --command" if file is not None else "neither FILE nor --command",
            why="one thing is migrated at a time",
            hint="trtkit migrate yaml FILE --from 1.0 --to 1.2",
        )
    if sum((out is not None, in_place, check)) > 1 or (in_place and file is None):
        raise UsageError(
            "--out, --in-place and --check exclude each other" if file is not None else "--in-place without FILE",
            why="the result goes to one place",
            hint="leave one of them out",
        )


def _release(option: str, text: str) -> str:
    from trtllm_kit.upstream.facts import version_key
    from trtllm_kit.upstream.releases import release, unknown_release

    unknown = unknown_release(text)
    if unknown:
        raise UsageError(f"{option} {text!r} is not a release trtkit knows", why=unknown, hint="trtkit upstream list")
    version = release(text).version
    if version_key(version) < version_key("0.17"):
        raise UsageError(
            f"{option} {version} has no LLM API that trtkit knows",
            why="its keys are known from 0.17 on",
            hint=f"{option} 0.17, or trtkit migrate engine for what builds engines",
        )
    return version


def _file(file: Path | None, between: tuple[str, str], *, keep: bool) -> Rewritten:
    from trtllm_kit.lint.read import read_bytes

    path = file or Path()
    raw = read_bytes(path)
    if path.suffix in _SCRIPTS or raw.startswith(b"#!"):
        return _script(raw, path, between, keep=keep)
    from trtllm_kit.migrate.release.yaml_file import rewritten

    return rewritten(raw, path.name, *between, keep_behaviour=keep)


def _script(raw: bytes, path: Path, between: tuple[str, str], *, keep: bool) -> Rewritten:
    from trtllm_kit.errors import NotMoved
    from trtllm_kit.migrate.release.changed import document_beside
    from trtllm_kit.migrate.release.serve_command import serve_rewritten

    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NotMoved(
            f"{path.name} cannot be read as a script", why=f"line {line} is not UTF-8", hint=f"mend line {line}"
        ) from None
    folder = path.parent
    return serve_rewritten(text, path.name, *between, lambda name: document_beside(folder, name), keep_behaviour=keep)


def _command(text: str, between: tuple[str, str], *, keep: bool) -> Rewritten:
    from trtllm_kit.migrate.release.changed import document_beside
    from trtllm_kit.migrate.release.serve_command import serve_rewritten

    return serve_rewritten(text, "--command", *between, lambda name: document_beside(Path(), name), keep_behaviour=keep)


def _write(place: Path, text: str, *, over: bool) -> None:
    from trtllm_kit.files import replace_text

    if not over and place.exists():
        raise OutputOccupied(
            f"{place} is there already", why="--out writes a new file", hint="--in-place, or another name"
        )
    try:
        replace_text(place, text)
    except OSError as error:
        raise storage_error(error, f"writing {place}") from None


def _document(name: str, between: tuple[str, str], made: Rewritten, written: str | None) -> dict[str, Any]:
    return {
        "file": name,
        "kind": made.kind,
        "from": between[0],
        "to": between[1],
        "changed": made.changed,
        "rows": [_row(one) for one in made.rows],
        "problems": [one.document() for one in made.problems],
        "unresolved": [one.document() for one in made.unresolved],
        "notes": list(made.notes),
        "unread": list(made.unread),
        "written": written,
        "text": made.text,
    }


def _row(row: Row) -> dict[str, Any]:
    from trtllm_kit.migrate.release.change import UNSAID

    return {
        "key": row.key,
        "line": row.line or None,
        "value": None if row.before == UNSAID else row.before,
        "said": row.before != UNSAID,
        "to": row.to or None,
        "becomes": None if row.after == UNSAID else row.after,
        "how": row.how.value,
        "why": row.why,
        "certainty": row.certainty,
    }


def _text(name: str, between: tuple[str, str], made: Rewritten, written: Path | None, *, show: bool) -> str:
    from trtllm_kit.cli.lint import show_located

    lines = [f"{printable(name)}: {made.kind}, from {between[0]} to {between[1]}"]
    lines += [f"in {between[0]}: {show_located(one)}" for one in made.problems]
    lines += [f"in {between[1]}: {show_located(one)}" for one in made.unresolved]
    if made.rows:
        lines.append(table(("line", "what", "becomes", "how", "why"), [_cells(row) for row in made.rows]))
    lines += [printable(note) for note in made.notes]
    lines.append(_told(made, written))
    if show and made.changed:
        lines += ["", made.text.rstrip("\n")]
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    doubt = "" if row.certainty == "read" else "; not confirmed for this release"
    return (
        str(row.line or ""),
        _setting(row.key, row.before),
        _setting(row.to, row.after),
        row.how.value,
        row.why + doubt,
    )


def _setting(key: str, value: object) -> str:
    from trtllm_kit.migrate.release.change import UNSAID

    if value == UNSAID:
        return f"{key} (not said)" if key else "-"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return printable(f"{key}: {text if len(text) <= _MOST_VALUE else text[: _MOST_VALUE - 1] + '…'}")


def _told(made: Rewritten, written: Path | None) -> str:
    changes = sum(row.changes for row in made.rows)
    told = f"{changes} changed, {len(made.lost)} lost" if made.rows else "nothing to change"
    if written is not None:
        return f"{told}; written to {printable(str(written))}"
    return f"{told}; nothing written, because the other release would refuse it" if made.is_refused else told
