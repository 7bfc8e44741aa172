"""``trtkit upstream``: what each TensorRT-LLM release accepts, and what changed between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.session import Session, heading, table
from trtllm_kit.errors import UsageError

if TYPE_CHECKING:
    from trtllm_kit.upstream.lookup import Difference
    from trtllm_kit.upstream.renames import Rename
    from trtllm_kit.upstream.tables import Entry

app = typer.Typer(
    help="What each TensorRT-LLM release accepts: look a key up, compare two releases.", no_args_is_help=True
)
_WIDE = 60


def complete_table(incomplete: str) -> list[str]:
    """Complete the name of a table."""
    from trtllm_kit.upstream.tables import table_names

    return [name for name in table_names() if name.startswith(incomplete)]


TableOption = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Only this table.", autocompletion=complete_table)
]


@app.command("list")
def list_tables(context: typer.Context) -> None:
    """List the tables and the releases they speak of."""
    from trtllm_kit.upstream.releases import known_releases
    from trtllm_kit.upstream.tables import TABLES, entries

    session: Session = context.obj
    rows = [(one.name, len({row.key for row in entries(one.name)}), one.about) for one in TABLES]
    document = {
        "tables": [{"name": name, "keys": keys, "about": about} for name, keys, about in rows],
        "releases": list(known_releases()),
    }
    session.result(document, lambda: _listed(rows, known_releases()))


@app.command("show", context_settings={"ignore_unknown_options": True})
def show(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, its last part, or a pattern with * and ?.")],
    *,
    table_name: TableOption = None,
) -> int:
    """Say which releases take KEY, with what values and default, and where that was read. Exit 1: no table has it."""
    from trtllm_kit.upstream.lookup import find, renames_of, suggestions

    session: Session = context.obj
    _known_table(table_name)
    if not key.strip():
        raise UsageError("KEY is empty", why="every key has a name", hint="trtkit upstream list")
    found = [row for row in find(key) if table_name in (None, row.table)]
    led = renames_of({key, *(row.key for row in found)})
    if not found and not led:
        near = suggestions(key)
        session.result({"key": key, "found": [], "suggestions": list(near)}, lambda: _nothing(key, table_name, near))
        return 1
    document: dict[str, Any] = {
        "key": key,
        "found": [_entry_document(row) for row in found],
        "renames": [one.model_dump() for one in led],
    }
    session.result(document, lambda: _shown(found, led))
    return 0


@app.command("diff")
def diff(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar="A", help="A release, e.g. 1.0 or 1.3.0rc20.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one, e.g. 1.2 or main.")],
    *,
    table_name: TableOption = None,
) -> None:
    """Say what was added, removed, renamed or changed from release A to release B, table by table."""
    from trtllm_kit.upstream.lookup import differences
    from trtllm_kit.upstream.tables import table_names

    session: Session = context.obj
    _known_table(table_name)
    old, new = _named_release("A", before), _named_release("B", after)
    names = [table_name] if table_name else [name for name in table_names() if name != "releases"]
    found = {name: differences(name, old, new) for name in names}
    document = {
        "before": old,
        "after": new,
        "tables": {name: [one.document() for one in changes] for name, changes in found.items()},
    }
    session.result(document, lambda: _compared(old, new, found))


def _named_release(argument: str, text: str) -> str:
    from trtllm_kit.upstream.releases import release, unknown_release

    unknown = unknown_release(text)
    if unknown:
        what = f"{argument} {text!r} is not a release trtkit knows"
        raise UsageError(what, why=unknown, hint="trtkit upstream list")
    return release(text).version


def _known_table(name: str | None) -> None:
    from trtllm_kit.upstream.tables import table_names

    if name is not None and name not in table_names():
        raise UsageError(
            f"--table {name} is no table",
            why=f"there are {', '.join(table_names())}",
            hint="trtkit upstream list",
        )


def _listed(rows: Iterable[tuple[str, int, str]], releases: tuple[str, ...]) -> str:
    shown = table(("table", "keys", "what"), [(name, str(keys), about) for name, keys, about in rows])
    return f"{shown}\n\nreleases: {', '.join(releases)}"


def _nothing(key: str, table_name: str | None, near: tuple[str, ...]) -> str:
    where = f"table {table_name}" if table_name else "no table"
    first = f"{key} is not in {where}" if table_name else f"{key} is in {where}"
    second = f"nearest are {', '.join(near)}" if near else "and no known key is near it"
    third = f"try: trtkit upstream show {near[0]}" if near else "try: trtkit upstream list"
    return "\n".join((first, second, third))


def _entry_document(row: Entry) -> dict[str, Any]:
    from trtllm_kit.upstream.lookup import releases_of

    return row.model_dump() | {"releases": list(releases_of(row))}


def _shown(found: list[Entry], led: tuple[Rename, ...]) -> str:
    parts = []
    for name, key in dict.fromkeys((row.table, row.key) for row in found):
        rows = [row for row in found if (row.table, row.key) == (name, key)]
        kinds = any(row.kind for row in rows)
        columns = [
            (*((row.kind,) if kinds else ()), _span(row), _facts(row.facts), row.certainty, row.source) for row in rows
        ]
        header = (*(("of",) if kinds else ()), "releases", "what it says", "certainty", "source")
        parts.append(f"{heading(key)} ({name})\n{table(header, columns)}")
    if led:
        lines = [(one.old, one.new or "nothing", str(one.since), one.note, one.certainty) for one in led]
        parts.append(table(("renamed", "became", "in", "note", "certainty"), lines))
    return "\n\n".join(parts)


def _span(row: Entry) -> str:
    start = f"from {row.since}" if row.since else "from the first"
    return start + (f", gone in {row.until}" if row.until else " on")


def _facts(facts: dict[str, Any]) -> str:
    return "; ".join(f"{name} {_spelt(value)}" for name, value in facts.items())


def _spelt(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_spelt(one) for one in value) or "none"
    return value if isinstance(value, str) else json.dumps(value)


def _compared(before: str, after: str, found: dict[str, tuple[Difference, ...]]) -> str:
    parts = [
        f"{heading(name)}: {before} -> {after}\n"
        + table(("change", "key", "of", "before", "after", "certainty"), [_line(one) for one in changes])
        for name, changes in found.items()
        if changes
    ]
    return "\n\n".join(parts) or f"nothing that the tables know of changed from {before} to {after}"


def _line(one: Difference) -> tuple[str, ...]:
    after = one.note if one.change in ("renamed", "removed") else _facts(one.after)
    return one.change, one.key, one.kind, _short(_facts(one.before)), _short(after), one.certainty


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"
