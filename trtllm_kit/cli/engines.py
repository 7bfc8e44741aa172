"""``trtkit engines``: what an engine is and where it runs, and the store that keeps engines to use again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.options import as_duration, complete_profile
from trtllm_kit.cli.session import Session, heading, table
from trtllm_kit.errors import UsageError
from trtllm_kit.units import format_bytes

if TYPE_CHECKING:
    from trtllm_kit.build.differences import Difference
    from trtllm_kit.build.prune import Verdict
    from trtllm_kit.build.store import Entry
    from trtllm_kit.build.verify import Damage

_VARIABLE = "TRTKIT_ENGINE_STORE"
_SHORT = 12

app = typer.Typer(help="Engines: what one is and where it runs; the store that keeps them.", no_args_is_help=True)
StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", envvar=_VARIABLE, help="Folder that trtkit build --store made.")
]


@app.command("list")
def list_engines(context: typer.Context, store: StoreArgument) -> None:
    """List the engines of a store, the latest used first, and who uses them."""
    from trtllm_kit.build.prune import users
    from trtllm_kit.build.store import open_store

    session: Session = context.obj
    opened = open_store(store)
    found = [(entry, users(opened, entry, _served)) for entry in opened.entries()]
    unfinished, unreadable = opened.unfinished(), opened.unreadable()
    document = {
        "store": str(store),
        "engines": [_entry_document(entry, used) for entry, used in found],
        "unfinished": unfinished,
        "unreadable": unreadable,
    }
    session.result(document, lambda: _listed(found, unfinished, unreadable))


@app.command("explain")
def explain(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="ENGINE", help="Anyone's engine folder.")],
    *,
    wanted: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="NAME|FILE",
            help="Say in which fields it differs from what this profile asks; exit 1 when it does.",
            autocompletion=complete_profile,
        ),
    ] = None,
) -> int:
    """Say what built an engine, its limits, options and formats, and where it can run."""
    from trtllm_kit.build.explain import explain as told_by

    session: Session = context.obj
    document = told_by(folder)
    found = () if wanted is None else _differences(folder, document, wanted)
    if wanted is not None:
        document["differences"] = [vars(one) for one in found]
    session.result(document, lambda: _explained(document, wanted, found))
    return 1 if found else 0


@app.command("verify")
def verify(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="ENGINE|STORE", envvar=_VARIABLE, help="An engine of trtkit's, or a whole store.")
    ],
    *,
    inputs: Annotated[bool, typer.Option("--inputs", help="Read the checkpoints of an engine too.")] = False,
) -> int:
    """Read every byte of an engine, or of all in a store, and compare it with the manifest. Exit 1 on a difference."""
    from trtllm_kit.build.verify import verify as compared

    session: Session = context.obj
    results = [(place, compared(place, session.progress())) for place in _to_verify(folder, inputs=inputs)]
    document = {
        "sound": not any(found for _, found in results),
        "folders": [{"folder": str(place), "damaged": [vars(one) for one in found]} for place, found in results],
    }
    session.result(document, lambda: "\n".join(_verified(*one) for one in results) or "no engine to verify")
    return 0 if document["sound"] else 1


@app.command("prune")
def prune(
    context: typer.Context,
    store: StoreArgument,
    *,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="COUNT", min=0, help="Keep that many of those used last.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than", metavar="DURATION", parser=as_duration, help="Only what was used last so long ago: 30d."
        ),
    ] = None,
    unused: Annotated[bool, typer.Option("--unused", help="Everything that nothing uses.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go; remove nothing.")] = False,
) -> None:
    """Remove engines from a store; one that is locked, linked from elsewhere or served stays."""
    from trtllm_kit.build.prune import Policy, clear_removed, judged, remove
    from trtllm_kit.build.store import open_store

    session: Session = context.obj
    if keep is None and older_than is None and not unused:
        raise UsageError(
            "prune is not told what may go",
            why="it takes --keep, --older-than or --unused, and of the first two together what both allow",
            hint=f"trtkit engines prune {store} --unused --dry-run",
        )
    opened = open_store(store)
    verdicts = judged(opened, Policy(keep, older_than), time.time_ns(), _served)
    if not dry_run:
        clear_removed(opened)
        verdicts = tuple(one if one.stays else remove(opened, one, _served) for one in verdicts)
    freed = sum(one.bytes for one in verdicts if not one.stays)
    document = {"dry_run": dry_run, "freed_bytes": freed, "engines": [vars(one) for one in verdicts]}
    session.result(document, lambda: _pruned(verdicts, freed, dry_run=dry_run))


def _served(folder: Path) -> str:
    """Say which process serves a repository, as the record beside it tells; empty when none does."""
    from trtllm_kit.errors import KitError
    from trtllm_kit.serve.run_record import is_running, read_record

    try:
        record = read_record(folder)
    except KitError as error:  # unknown is not unused
        return f"whether {folder} is served cannot be known: {error.why}"
    return f"process {record.pid} serves {folder}" if record is not None and is_running(record) else ""


def _differences(folder: Path, document: dict[str, Any], wanted: str) -> tuple[Difference, ...]:
    """Return what stands between an engine and a profile: of ours every decision, of others what config.json tells."""
    from trtllm_kit import __version__
    from trtllm_kit.artifact import MANIFEST, read_manifest
    from trtllm_kit.build.differences import differences
    from trtllm_kit.build.driver import driver_class
    from trtllm_kit.build.nearest import asked_of, origin_of, profile_differences
    from trtllm_kit.cli.replan import replan

    if not (folder / MANIFEST).is_file():
        loaded, hardware = asked_for(wanted)
        return profile_differences(document, loaded.profile, hardware)
    manifest, plan = read_manifest(folder, "engine"), replan(folder, wanted)
    driver = driver_class() if plan.build is not None else None
    return differences(origin_of(folder, manifest), asked_of(plan, manifest, driver, __version__))


def _to_verify(folder: Path, *, inputs: bool) -> list[Path]:
    """Return the folders to read; raises ``ManifestError`` for one that is neither, or an engine without inputs."""
    from trtllm_kit.artifact import read_manifest
    from trtllm_kit.build.engine import inputs_of
    from trtllm_kit.build.store import is_store, open_store

    if is_store(folder):
        store = open_store(folder)
        return [store.place(key) for key in store.finished()]
    manifest = read_manifest(folder, "engine")
    return [folder, *(inputs_of(folder, manifest) if inputs else ())]


def _entry_document(entry: Entry, used: tuple[str, ...]) -> dict[str, Any]:
    return {
        "key": entry.key,
        "folder": str(entry.folder),
        "bytes": entry.bytes,
        "used": _day(entry.used_ns),
        "used_by": list(used),
        "inputs": entry.manifest.inputs,
        "facts": entry.manifest.facts,
    }


def _listed(found: list[tuple[Entry, tuple[str, ...]]], unfinished: list[str], unreadable: dict[str, str]) -> str:
    rows = []
    for entry, used in found:
        facts = entry.manifest.facts
        words = [str(facts.get(name, "")) for name in ("profile", "release", "toolchain", "world_size")]
        rows.append((entry.key[:_SHORT], *words, format_bytes(entry.bytes), _day(entry.used_ns), "; ".join(used)))
    columns = ("key", "profile", "release", "toolchain", "ranks", "size", "last used", "used by")
    shown = [table(columns, rows) if rows else "no engine"]
    shown += [f"unfinished: {key[:_SHORT]}, which the same build goes on with" for key in unfinished]
    shown += [f"unreadable: {key[:_SHORT]}, which engines prune can remove: {why}" for key, why in unreadable.items()]
    return "\n".join(shown)


def _explained(document: dict[str, Any], wanted: str | None, found: tuple[Difference, ...]) -> str:
    parts = [f"{document['engine']}: {document['kind']}"]
    for name, section in document.items():
        if isinstance(section, dict) and name != "parts":
            rows = [(key.replace("_", " "), _spelt(value)) for key, value in section.items()]
            parts.append(f"{heading(name.replace('_', ' '))}\n{table(('what', 'value'), rows)}" if rows else "")
    parts += [_explained(part, None, ()) for part in document.get("parts", {}).values()]
    if wanted is not None:
        fields = [(one.field, one.there, one.asked) for one in found]
        verdict = table(("field", "there", "asked"), fields) if fields else f"it is what {wanted} asks for"
        parts.append(f"{heading('for ' + wanted)}\n{verdict}")
    return "\n\n".join(part for part in parts if part)


def _spelt(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_spelt(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_spelt, value)) or "none"
    return (
        {True: "yes", False: "no", None: "none"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )


def _verified(place: Path, found: tuple[Damage, ...]) -> str:
    if not found:
        return f"{place}: sound"
    rows = [(one.path, one.what, _sum(one.bytes, one.sha256), _sum(one.found_bytes, one.found_sha256)) for one in found]
    return f"{place}: damaged\n{table(('file', 'what', 'in the manifest', 'found'), rows)}"


def _sum(size: int | None, digest: str | None) -> str:
    return "nothing" if size is None or digest is None else f"{size} bytes, SHA-256 {digest}"


def _pruned(verdicts: tuple[Verdict, ...], freed: int, *, dry_run: bool) -> str:
    word = "would go" if dry_run else "removed"
    rows = []
    for one in verdicts:
        state = f"stays: {one.stays}" if one.stays else word
        name = f"{one.key[:_SHORT]}{' (unfinished)' if one.unfinished else ''}"
        rows.append((name, format_bytes(one.bytes), _day(one.used_ns), state))
    shown = table(("key", "size", "last used", "what becomes of it"), rows) if rows else "no engine"
    return f"{shown}\n{'would free' if dry_run else 'freed'} {format_bytes(freed)}"


def _day(moment_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment_ns // 1_000_000_000))
