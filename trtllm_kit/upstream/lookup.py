"""Questions asked of all tables at once: what is known of a key, and what changed between two releases."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trtllm_kit.upstream.facts import Certainty
from trtllm_kit.upstream.releases import known_releases
from trtllm_kit.upstream.renames import Rename, renames
from trtllm_kit.upstream.tables import Entry, all_entries, entries

Change = Literal["added", "removed", "renamed", "changed"]
_GLOB = frozenset("*?[")
_SUGGESTIONS = 5


@dataclass(frozen=True)
class Difference:
    """What changed of one key between two releases."""

    table: str
    key: str
    kind: str
    change: Change
    before: dict[str, Any]
    after: dict[str, Any]
    """For a changed key what differs; for one added or removed what it is or was."""
    certainty: Certainty
    """Of the less certain of the two."""
    note: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return dict(vars(self))


def find(key: str) -> tuple[Entry, ...]:
    """Return the rows that a key names, exactly or by the last part of theirs, else in any letter case.

    A dotted key or a flag with its dashes that is there exactly is that one alone. With ``*``, ``?`` or ``[`` the key
    is a pattern for whole keys.
    """
    known = tuple(all_entries())
    if _GLOB & set(key):
        return tuple(row for row in known if fnmatch.fnmatchcase(row.key, key))
    whole = (_is_exactly,) if "." in key or key.startswith("-") else ()
    for wanted in (*whole, _ends_with, _is_alike):
        found = tuple(row for row in known if wanted(row, key))
        if found:
            return found
    return ()


def suggestions(key: str) -> tuple[str, ...]:
    """Return the keys that one which is in no table was most likely meant to be, nearest first."""
    names: dict[str, str] = {}
    for row in all_entries():
        names.setdefault(row.key.lower(), row.key)
        names.setdefault(_last_part(row.key).lower(), row.key)
    close = difflib.get_close_matches(key.lower(), names, n=2 * _SUGGESTIONS)
    return tuple(dict.fromkeys(names[name] for name in close))[:_SUGGESTIONS]


def renames_of(keys: Iterable[str]) -> tuple[Rename, ...]:
    """Return every rename that leads to or from one of the keys."""
    wanted = set(keys)
    return tuple(row for row in renames() if row.old in wanted or row.new in wanted)


def releases_of(row: Entry) -> tuple[str, ...]:
    """Return the known releases of which a row speaks, oldest first."""
    return tuple(version for version in known_releases() if row.holds(version))


def differences(table: str, before: str, after: str) -> tuple[Difference, ...]:
    """Return what changed in a table from one release to another, in the order of its keys."""
    return tuple(sorted(_differences(table, before, after), key=lambda one: (one.key, one.kind)))


def _differences(table: str, before: str, after: str) -> Iterator[Difference]:
    old, new = _held(table, before), _held(table, after)
    led = _led_over(table, before, after)
    for identity in old.keys() | new.keys():
        one, other = old.get(identity), new.get(identity)
        if one is not None and other is not None:
            yield from _changed(one, other, before, after)
        elif one is not None and not _inside_unknown(identity, new):
            yield _came_or_went(one, (before, after), gone=True, led=led)
        elif other is not None and not _inside_unknown(identity, old):
            yield _came_or_went(other, (before, after), gone=False, led=led)


def _changed(one: Entry, other: Entry, before: str, after: str) -> Iterator[Difference]:
    names = [name for name in one.facts | other.facts if one.facts.get(name) != other.facts.get(name)]
    if names:
        was, is_now = ({name: row.facts.get(name) for name in names} for row in (one, other))
        sure = _less_certain(one.certainty_in(before), other.certainty_in(after))
        yield Difference(one.table, one.key, one.kind, "changed", was, is_now, sure)


def _inside_unknown(identity: tuple[str, str], held: dict[tuple[str, str], Entry]) -> bool:
    """Whether a release has the section that a dotted key stands in, and nothing was read of its inside."""
    key, kind = identity
    section = key.rpartition(".")[0]
    if (section, kind) not in held:
        return False
    return not any(other.startswith(f"{section}.") for other, of in held if of == kind)


def _came_or_went(row: Entry, between: tuple[str, str], *, gone: bool, led: dict[str, Rename]) -> Difference:
    rename = led.get(row.key) if gone else None
    before, after = (row.facts, {}) if gone else ({}, row.facts)
    change: Change = "removed" if gone else "added"
    if rename is not None and rename.new:
        change, after = "renamed", {"key": rename.new}
    sure = _less_certain(*(row.certainty_in(version) for version in between))
    sure = _less_certain(sure, rename.certainty if rename else "read")
    return Difference(row.table, row.key, row.kind, change, before, after, sure, rename.message if rename else "")


def _held(table: str, version: str) -> dict[tuple[str, str], Entry]:
    return {(row.key, row.kind): row for row in entries(table) if row.holds(version)}


def _led_over(table: str, before: str, after: str) -> dict[str, Rename]:
    rows = (row for row in renames() if row.table == table)
    return {row.old: row for row in rows if row.holds(after) and not row.holds(before)}


def _less_certain(one: Certainty, other: Certainty) -> Certainty:
    order: tuple[Certainty, ...] = ("read", "near", "recalled")
    return max(one, other, key=order.index)


def _is_exactly(row: Entry, key: str) -> bool:
    return row.key.lstrip("-") == key.lstrip("-")


def _ends_with(row: Entry, key: str) -> bool:
    return _last_part(row.key) == key.lstrip("-") or row.key.endswith(f".{key}")


def _is_alike(row: Entry, key: str) -> bool:
    return key.lower() in (row.key.lower(), _last_part(row.key).lower())


def _last_part(key: str) -> str:
    return key.partition("{")[0].rpartition(".")[2].lstrip("-")
