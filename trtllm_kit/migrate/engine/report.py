"""A migration's account as text and as Markdown (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trtllm_kit.migrate.engine.account import Account
from trtllm_kit.migrate.engine.clients import POLICY, SHOWN_BY
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.printable import printable
from trtllm_kit.repository.places import LINK
from trtllm_kit.units import counted

TITLES = {
    "none": "No equivalent",
    "approximate": "Approximate",
    "exact": "Exact",
    "dropped": "Dropped: now the default, or of a step that is gone",
}
_COUNTED = {"exact": "exact", "approximate": "approximate", "dropped": "dropped", "none": "without equivalent"}
_LINKED = f"`repository/{LINK}` must lead to the checkpoint that `trtkit convert` makes; `trtkit deploy` sets the link."
_LONGEST = 120


def text(account: Account, *, verbose: bool = False) -> str:
    """Lay the account out for a terminal: what needs a look, and with ``verbose`` every row."""
    lines = [_head(account), _counted(account)]
    for how in TITLES:
        rows = [row for row in account.rows if row.how == how]
        if rows and (verbose or how in ("none", "approximate")):
            lines += ["", TITLES[how], *(line for row in rows for line in _told(row))]
    lines += _listed("Not read", *((f"{one.where}: {_short(one.text)}", one.why) for one in account.found.unread))
    lines += _listed(
        "Written although no file says it", *((f"{one.key}: {one.value}", one.why) for one in account.assumed)
    )
    lines += _listed(
        "The plan says",
        *((f"{one.severity} {one.rule}: {one.message}", f"try: {one.suggestion}") for one in account.findings),
    )
    lines += _listed(
        "Prometheus rules",
        *((f"line {one.line} {one.name}: {_fate(one.fate)}", *one.notes) for one in account.rules),
    )
    lines += _listed("Next", *((step,) for step in account.next_steps))
    return "\n".join(map(printable, lines))


def _head(account: Account) -> str:
    asked = account.asked
    came = f"release {account.found.release}" if account.found.release else "a release that no file names"
    return f"{asked.source}: from engines of {came} to release {asked.release} on {asked.hardware}"


def _counted(account: Account) -> str:
    counts = account.counts
    told = ", ".join(f"{counts[how]} {word}" for how, word in _COUNTED.items())
    return f"{counted(len(account.rows), 'setting')}: {told}; {counted(len(account.found.unread), 'place')} not read"


def _listed(title: str, *items: tuple[str, ...]) -> list[str]:
    """Return a list under its title, the later lines of each item further in; nothing for an empty one."""
    lines = [f"{'    ' if place else '  '}{line}" for item in items for place, line in enumerate(item)]
    return ["", title, *lines] if lines else []


def _told(row: Row) -> Iterator[str]:
    yield f"  {row.setting.where}: {_setting(row)}: {row.means}"
    if _becomes(row):
        yield f"    becomes {_becomes(row)}"
    if row.lost:
        yield f"    lost: {row.lost}"
    if row.instead:
        yield f"    try: {row.instead}"
    if row.note:
        yield f"    {row.note}"


def _setting(row: Row) -> str:
    setting = row.setting
    model = f" of model {setting.model}" if setting.model else ""
    return f"{setting.name} = {_short(row.shown)} ({setting.reader.value}{model})"


def _short(value: object) -> str:
    shown = "not filled in" if value is None else " ".join(str(value).split())
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def _becomes(row: Row) -> str:
    if row.value is None:
        return ""
    keys = " and ".join(filter(None, (row.place, f"LLM-API {row.llm}" if row.key and row.llm else "")))
    return f"{keys} {row.value}" if row.overruled_by is None else ""


def _fate(fate: str) -> str:
    return {"same": "stays as it is", "rewritten": "rewritten", "none": "left out"}[fate]


def markdown(account: Account) -> str:
    """Return the account as ``report.md``: every setting, then clients, metrics, rules and what to do next."""
    parts = [f"# Migration of {_cell(account.asked.source)}", f"{_head(account)}.", f"{_counted(account)}."]
    parts.append(f"The machine is {account.asked.hardware}: {account.asked.why_hardware}.")
    if account.planned_for:
        parts.append(f"Planned for {_cell(account.planned_for)}. {_LINKED}")
    else:
        parts.append(
            "No model was named, so nothing was planned and no repository written: run it again with `--model FOLDER`; "
            "a folder with config.json alone is enough."
        )
    for how, title in TITLES.items():
        rows = [row for row in account.rows if row.how == how]
        if rows:
            parts += [f"## {title}", _table(_HEADERS[how], (_cells(row, how) for row in rows))]
    parts += _more(account)
    return "\n\n".join(parts) + "\n"


_HEADERS = {
    "none": ("where", "setting", "what it meant", "what is lost", "what to do"),
    "approximate": ("where", "setting", "what it meant", "becomes", "what is lost", "what to do"),
    "exact": ("where", "setting", "what it meant", "becomes", "note"),
    "dropped": ("where", "setting", "what it meant", "why"),
}


def _cells(row: Row, how: str) -> tuple[str, ...]:
    first = (str(row.setting.where), _setting(row), row.means)
    lost = f"{row.lost}; {row.note}" if row.note else row.lost
    return {
        "none": (*first, lost, row.instead),
        "approximate": (*first, _becomes(row), lost, row.instead),
        "exact": (*first, _becomes(row), row.note),
        "dropped": (*first, row.note),
    }[how]


def _more(account: Account) -> Iterator[str]:
    unread = [(str(one.where), _short(one.text), one.why) for one in account.found.unread]
    if unread:
        yield from ("## Not read", _table(("where", "text", "why"), unread))
    if account.assumed:
        yield from (
            "## Written although no file says it",
            _table(("key", "value", "why"), [(one.key, str(one.value), one.why) for one in account.assumed]),
        )
    if account.findings:
        yield from (
            "## What the plan says",
            _table(
                ("severity", "rule", "finding", "what to do"),
                [(one.severity, one.rule, one.message, one.suggestion) for one in account.findings],
            ),
        )
    yield from ("## Clients", "\n".join(f"- {line}" for line in POLICY))
    yield _table(
        ("side", "tensor", "is now", "note"),
        [(one.side, one.old, one.new or "none", one.note) for one in account.clients],
    )
    yield from (
        "## Metrics",
        SHOWN_BY,
        _table(
            ("family", "is now", "note"),
            [(one.old, one.new if one.how == "exact" else "none", one.note) for one in account.metrics],
        ),
    )
    if account.rules:
        yield from (
            "## Prometheus rules",
            _table(
                ("line", "rule", "what became of it", "why"),
                [(str(one.line), one.name, _fate(one.fate), "; ".join(one.notes)) for one in account.rules],
            ),
        )
    yield from (
        "## Next",
        "\n".join(
            f"{number}. `{step}`" if step.startswith("trtkit") else f"{number}. {step}"
            for number, step in enumerate(account.next_steps, 1)
        ),
    )


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line(headers), _line(["---"] * len(headers))]
    return "\n".join([*lines, *(_line([_cell(cell) for cell in row]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: str) -> str:
    """Return a text as one cell: on one line, and with nothing that Markdown would read."""
    shown = printable(" ".join(value.split()))
    return "".join(_MEANT.get(letter, letter) for letter in shown)


_MEANT = {"\\": "\\\\", "|": "\\|", "`": "\\`", "<": "&lt;"}
