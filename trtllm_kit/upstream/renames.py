"""What took the place of a key or word that a release takes no more."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows, version_key


class Rename(Fact):
    """One key or word, and what later releases have in its place; ``since`` is the first of them."""

    table: str
    """As in ``trtkit upstream list``."""
    old: str
    new: str
    """Empty where nothing took its place."""
    note: str = ""
    change: Literal["same", "opposite", "switch", "words", "none"] = "same"
    """What becomes of the value: nothing; true for false; a section or null for true or false; one word for another; or
    no rule makes the new value of the old one."""
    words: tuple[tuple[bool | int | str, bool | int | str], ...] = ()
    """(old, new) values of ``change: words``."""
    always: tuple[bool | int | str, ...] = ()
    """Where nothing took its place: the values that the release goes by anyway."""

    @property
    def message(self) -> str:
        """What to write instead, as the end of a sentence that begins with the old name."""
        became = f"became {self.new}" if self.new else "is gone"
        return f"{became} in {self.since}" + (f": {self.note}" if self.note else "")


def renamed(name: str, version: str) -> Rename | None:
    """Return what took the place of a name that the release takes no more; None where nothing of the kind is known."""
    found = (row for row in renames() if row.old == name)
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


def renamed_later(name: str, version: str) -> Rename | None:
    """Return the name that releases before a later rename had, for one that this release does not know yet."""
    found = (row for row in renames() if row.new == name and row.since is not None)
    return next((row for row in found if version_key(version) < version_key(str(row.since))), None)


def taken_before(name: str, version: str) -> bool:
    """Whether a name that later releases renamed, or a section of such names, is still the one in that release."""
    found = (row for row in renames() if row.since is not None and f"{row.old}.".startswith(f"{name}."))
    return any(version_key(version) < version_key(str(row.since)) for row in found)


@cache
def renames() -> tuple[Rename, ...]:
    """Return every row."""
    return rows("renames", "renames", Rename)
