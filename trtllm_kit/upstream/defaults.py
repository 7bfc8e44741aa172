"""What a release does where a document says nothing, and words that became other words."""

from __future__ import annotations

from functools import cache
from typing import Any

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "defaults"


class Default(Fact):
    """One choice in one range of releases."""

    name: str
    """The choice, whatever key governs it in which release."""
    key: str
    """Dotted key of the LLM API that governs it there."""
    does: Any
    """What holds without the key, in the one word that all releases share."""
    spelt: tuple[tuple[Any, Any], ...] = ()
    """(word, value of the key) where the value is not the word itself; other words cannot be said there."""
    needs: str = ""
    """The key, or ``key=value``, that must be set for the choice to matter."""
    note: str = ""

    def says(self, word: object) -> tuple[bool, Any]:
        """Return whether the release has a value of the key for a word, and the value."""
        if not self.spelt:
            return True, word
        return next(((True, value) for known, value in self.spelt if _same(known, word)), (False, None))

    def word(self, value: object) -> object:
        """Return what a value of the key stands for; a value that is in no list stands for itself."""
        return next((word for word, known in self.spelt if _same(known, value)), value)


class _Same(Fact):
    key: str
    why: str


class Word(Fact):
    """A value that the releases of the range do not take, and the one that comes nearest."""

    key: str
    old: bool | int | str
    new: bool | int | str
    exact: bool
    note: str = ""


def default_of(name: str, version: str) -> Default | None:
    """Return what a release does of a choice by itself; None where that was not read."""
    return next((row.seen_from(version) for row in defaults() if row.name == name and row.holds(version)), None)


def governed_by(key: str, version: str) -> Default | None:
    """Return the choice that a dotted key governs in a release; None for a key of no such choice."""
    return next((row.seen_from(version) for row in defaults() if row.key == key and row.holds(version)), None)


def choices() -> tuple[str, ...]:
    """Return the names of all choices, in the order of the table."""
    return tuple(dict.fromkeys(row.name for row in defaults()))


def means_the_same() -> tuple[str, ...]:
    """Return the keys whose defaults are written differently from release to release and mean the same."""
    return tuple(row.key for row in rows(_TABLE, "same", _Same))


def word_instead(key: str, value: object, version: str) -> Word | None:
    """Return the word that a release has in the place of one that it does not take; None when none is known."""
    found = (row for row in _words() if row.key == key and _same(row.old, value))
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


@cache
def defaults() -> tuple[Default, ...]:
    """Return every row."""
    return rows(_TABLE, "choices", Default)


@cache
def _words() -> tuple[Word, ...]:
    return rows(_TABLE, "words", Word)


def _same(one: object, other: object) -> bool:
    """Whether two values are the same; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
