"""One mapping of ``config.json``, read key by key: typed answers, and every problem noted instead of raised.

A reader declares what it understands by asking for it. ``unread`` gives what nobody asked for, which
``hf_neutral`` then judges.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
W = TypeVar("W", bound=str)

_LONGEST_FOUND = 60
MOST_PROBLEMS = 100
"""Problems that are noted of one file; what has more is another kind of file."""


class KeyProblem(NamedTuple):
    """One thing wrong with one key of ``config.json``."""

    key: str
    state: str
    """``is missing``, or ``is`` and what the file holds, as JSON."""
    expected: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.key} {self.state}; expected {self.expected}"


class Keys:
    """Typed access to one mapping: a wrong or missing value is noted and answered with a harmless stand-in.

    A key that is null counts as absent. What is read here is to be used only when ``problems`` stays empty.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "", problems: list[KeyProblem] | None = None) -> None:
        """Read ``values``, which stand at ``path`` (``""``, ``"text_config."``), noting into ``problems``."""
        self.values = values
        self.problems: list[KeyProblem] = [] if problems is None else problems
        self._path = path
        self._asked: set[str] = set()
        self._bad: set[str] = set()

    def integer(self, key: str, default: int | None = None, *, least: int = 1, most: int = 10**9) -> int:
        """Return a whole number; required when there is no default."""
        expected = _whole_words(least, most)
        return self._settled(key, self.optional_integer(key, least=least, most=most), default, least, expected)

    def optional_integer(self, key: str, *, least: int = 1, most: int = 10**9) -> int | None:
        """Return a whole number, or None when it is absent."""
        beyond = type(self.values.get(key)) is int and self.values[key] > most
        expected = _from_to(least, most) if beyond else _whole_words(least, most)
        value: int | None = self._checked(key, lambda value: type(value) is int and least <= value <= most, expected)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number above zero; required when there is no default."""
        return self._settled(key, self.optional_number(key), default, 1.0, _NUMBER)

    def optional_number(self, key: str) -> float | None:
        """Return a finite number above zero, or None when it is absent."""
        value = self._checked(key, _is_positive, _NUMBER)
        return None if value is None else float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._checked(key, lambda value: isinstance(value, bool), "true or false")
        return default if value is None else bool(value)

    def word(self, key: str, allowed: Sequence[W], default: W | None = None) -> W:
        """Return one of the allowed words; required when there is no default."""
        expected = _one_of(allowed)
        value: W | None = self._checked(key, lambda value: isinstance(value, str) and value in allowed, expected)
        return self._settled(key, value, default, allowed[0], expected)

    def integers(self, key: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers of 0 or more, or None when it is absent."""
        value = self._checked(key, _is_list(lambda item: type(item) is int and item >= 0), "a list of whole numbers")
        return None if value is None else tuple(value)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        """Return a list of finite numbers above zero, or None when it is absent."""
        value = self._checked(key, _is_list(_is_positive), "a list of numbers above 0")
        return None if value is None else tuple(map(float, value))

    def completed(self, defaults: Mapping[str, Any]) -> Keys:
        """Return the same mapping with ``defaults`` where it has no such key; a null stays."""
        return Keys({**defaults, **self.values}, self._path, self.problems)

    def words(self, key: str, allowed: Sequence[str]) -> tuple[str, ...] | None:
        """Return a list of allowed words, or None when it is absent."""
        good = _is_list(lambda item: isinstance(item, str) and item in allowed)
        value = self._checked(key, good, f"a list of {_one_of(allowed)}")
        return None if value is None else tuple(value)

    def section(self, key: str) -> dict[str, Any] | None:
        """Return a mapping, or None when it is absent."""
        value: dict[str, Any] | None = self._checked(key, lambda value: isinstance(value, dict), "a mapping")
        return value

    def inner(self, key: str) -> Keys:
        """Return typed access to a mapping, an empty one when it is absent."""
        return Keys(self.section(key) or {}, f"{self._path}{key}.", self.problems)

    def inners(self, key: str) -> tuple[Keys, ...] | None:
        """Return typed access to a list of mappings, or None when it is absent."""
        value = self._checked(key, _is_list(lambda item: isinstance(item, dict)), "a list of mappings")
        if value is None:
            return None
        return tuple(Keys(item, f"{self._path}{key}[{number}].", self.problems) for number, item in enumerate(value))

    def spelling(self, *names: str) -> str:
        """Return which of a key's spellings holds it (the first when none does); two that differ are a problem."""
        self._asked.update(names)
        held = [name for name in names if self.values.get(name) is not None]
        for other in held[1:]:
            if self.values[other] != self.values[held[0]]:
                self.note(other, f"the value of {held[0]}, {as_json(self.values[held[0]])}: both name one thing")
        return held[0] if held else names[0]

    def states(self, key: str) -> bool:
        """Whether the key is there at all, null included."""
        return key in self.values

    def note(self, key: str, expected: str) -> None:
        """Record a problem with a key; the same one, met again by another reader, counts once."""
        self._bad.add(key)
        if len(self.problems) == MOST_PROBLEMS:
            return
        state = f"is {as_json(self.values[key])}" if key in self.values else "is missing"
        problem = KeyProblem(self._path + key, state, expected)
        if problem not in self.problems:
            self.problems.append(problem)

    def sound(self, *keys: str) -> bool:
        """Whether none of these keys has a problem so far, so that comparing them makes sense."""
        return self._bad.isdisjoint(keys)

    def ignore(self, *keys: str) -> None:
        """Take keys as understood where their value has no effect."""
        self._asked.update(keys)

    def unread(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys nobody asked for, with values that are not null."""
        yield from ((key, value) for key, value in self.values.items() if key not in self._asked and value is not None)

    def _checked(self, key: str, good: Callable[[Any], bool], expected: str) -> Any:
        """Return a good value; None for an absent one, and for a bad one after noting it."""
        self._asked.add(key)
        value = self.values.get(key)
        if value is None or good(value):
            return value
        self.note(key, expected)
        return None

    def _settled(self, key: str, value: T | None, default: T | None, stand_in: T, expected: str) -> T:
        """Choose between a value, its default, and a stand-in for a required key, whose absence is noted."""
        if value is not None:
            return value
        if default is not None:
            return default
        if self.sound(key):
            self.note(key, expected)
        return stand_in


def as_json(value: object) -> str:
    """Spell a value as JSON, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_FOUND else text[: _LONGEST_FOUND - 4] + " ..."


_NUMBER = "a number above 0"


def _is_positive(value: object) -> bool:
    """Whether a value is a number above zero that a float can hold: a whole number may be larger than any."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= sys.float_info.max


def _is_list(good: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(good(item) for item in value)


def _whole_words(least: int, most: int) -> str:
    return f"a whole number of {least} or more" if most == 10**9 else _from_to(least, most)


def _from_to(least: int, most: int) -> str:
    return f"a whole number from {least} to {most}"


def _one_of(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
