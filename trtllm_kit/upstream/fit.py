"""Whether a release takes a value, as far as its type and its list of words say (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BETWEEN = re.compile(r"\|(?![^\[]*\])")
"""Parts the kinds of a type, and not those of a list's items."""
_LIST = "list["


def fits(value: Any, of_type: str, allowed: tuple[Any, ...]) -> bool:
    """Whether a release takes a value, as far as its type and its list of words say; texts of numbers are numbers."""
    kinds = set(_BETWEEN.split(of_type))
    if value is None:
        return "null" in kinds or not kinds <= {"bool", "int", "float", "str", "enum", "mapping"}
    if isinstance(value, list | tuple):
        return _list_fits(list(value), kinds, allowed)
    if isinstance(value, Mapping):
        return any(not _is_known(kind) or kind == "mapping" for kind in kinds)
    if kinds & {"enum", "const"}:
        return is_word(value, allowed) or "str" in kinds
    if any(not _is_known(kind) for kind in kinds):
        return True
    return any(_is_of(value, kind) for kind in kinds & _CHECKS.keys())


def in_words(of_type: str) -> str:
    """Return a type as a sentence has it, e.g. ``a whole number or null``."""
    return " or ".join(_in_words(kind) for kind in _BETWEEN.split(of_type))


def _in_words(kind: str) -> str:
    if kind.startswith(_LIST):
        return f"a list, each item {in_words(kind[len(_LIST) : -1])}"
    return _WORDS.get(kind, kind)


def _list_fits(value: list[Any], kinds: set[str], allowed: tuple[Any, ...]) -> bool:
    """Whether a list is one of a type's kinds, and its items are; words are held against each item."""
    if allowed and not all(isinstance(one, list) or is_word(one, allowed) for one in value):
        return False
    items = [kind[len(_LIST) : -1] for kind in kinds if kind.startswith(_LIST)]
    if items:
        return any(all(fits(one, kind, allowed) for one in value) for kind in items)
    return bool(allowed) or any(not _is_known(kind) for kind in kinds)


def _is_known(kind: str) -> bool:
    """Whether it is known what a kind takes."""
    return kind in _KNOWN or kind.startswith(_LIST)


_WORDS = {
    "bool": "true or false", "int": "a whole number", "float": "a number", "str": "text", "enum": "a word",
    "const": "a word", "mapping": "a mapping", "any": "anything", "object": "anything", "never": "nothing",
}  # fmt: skip
_CHECKS: dict[str, Any] = {"bool": bool, "int": int, "float": int | float, "str": str}
_KNOWN = frozenset({*_CHECKS, "null", "mapping", "enum", "const"})
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?", re.IGNORECASE)
_BOOLEANS = frozenset({"true", "false", "yes", "no", "on", "off"})


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, str) and kind != "str":
        return value.lower() in _BOOLEANS if kind == "bool" else _NUMBER.fullmatch(value) is not None
    if kind == "int" and isinstance(value, float):
        return value.is_integer()
    if kind == "bool" and isinstance(value, int):
        return value in (0, 1)
    return isinstance(value, _CHECKS[kind]) and (kind == "bool" or not isinstance(value, bool))


def is_word(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether a value is a word of a list, in any letter case; words are not held against numbered lists."""
    if not allowed:
        return True
    if isinstance(value, str):
        words = {str(one).lower() for one in allowed}
        return value.lower() in words or not any(isinstance(one, str) for one in allowed)
    return any(equal(value, one) for one in allowed)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same; true is not 1."""
    return one == other and type(one) is type(other)
