"""From plain data to ``Frozen`` objects, strictly: nothing missing, nothing unknown, nothing of another type.

No value is turned into another type, but for what JSON spells in one way only: a list is a tuple, a whole number may
stand for a float, a word for a member of an enumeration. Objects that are made already are taken in their places.
"""

from __future__ import annotations

import contextlib
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from trtllm_kit.frozen import Frozen

T = TypeVar("T", bound=Frozen)
_SHOWN = 60


class Mismatch(ValueError):
    """A document is not of its type; the text says where, and what stands there."""


def read(kind: type[T], document: object) -> T:
    """Return the object that a document spells; raises ``Mismatch`` with the dotted place of the first fault."""
    return typing.cast("T", _read(kind, document, ""))


def _read(hint: Any, value: Any, place: str) -> Any:
    """Return a value as its annotation has it."""
    if hint in _PLAIN:
        return _plain(hint, value, place)
    origin = get_origin(hint)
    if origin is Annotated:
        return _validated(hint, value, place)
    by_form = _BY_FORM.get(origin)
    if by_form is not None:
        return by_form(get_args(hint), value, place)
    return _object(hint if origin is None else origin, get_args(hint), value, place)


_NONE = type(None)
_PLAIN = (str, int, float, bool, _NONE)
_NAMES = {str: "text", int: "a whole number", float: "a finite number", bool: "true or false", _NONE: "null"}


def _plain(kind: Any, value: Any, place: str) -> Any:
    if kind is float and type(value) is int:
        return _float(value, place)
    if type(value) is kind and (kind is not float or math.isfinite(value)):
        return value
    raise _other(_NAMES[kind], value, place)


def _float(value: int, place: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _other("a number that a float can hold", value, place) from None


def _word(allowed: tuple[Any, ...], value: Any, place: str) -> Any:
    if any(value == word and type(value) is type(word) for word in allowed):
        return value
    raise _other(f"one of {', '.join(map(str, allowed))}", value, place)


def _items(hints: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _other("a list", value, place)
    return tuple(_read(hints[0], item, f"{place}[{number}]") for number, item in enumerate(value))


def _mapping(hints: tuple[Any, ...], value: Any, place: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _other("a mapping", value, place)
    keys, values = hints
    return {
        _read(keys, key, f"a key of {place}"): _read(values, item, f"{place}.{_cut(str(key))}")
        for key, item in value.items()
    }


def _one_of(hints: tuple[Any, ...], value: Any, place: str) -> Any:
    """Return a value of one of several types: of objects the one whose ``kind`` it states, else the first it fits."""
    if value is None and _NONE in hints:
        return None
    others = tuple(hint for hint in hints if hint is not _NONE)
    objects = tuple(hint for hint in others if isinstance(hint, type) and issubclass(hint, Frozen))
    if len(others) == 1:
        return _read(others[0], value, place)
    if objects and isinstance(value, Mapping):
        return _read(_stated(objects, value, place), value, place)
    for hint in others:
        with contextlib.suppress(Mismatch):
            return _read(hint, value, place)
    raise _other(" or ".join(map(_name, others)), value, place)


_BY_FORM: Mapping[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    Union: _one_of,
    types.UnionType: _one_of,
    Literal: _word,
    tuple: _items,
    dict: _mapping,
    Mapping: _mapping,
}


def _stated(objects: tuple[Any, ...], value: Mapping[str, Any], place: str) -> Any:
    kinds = {word: one for one in objects for word in get_args(_hints(one)["kind"])}
    stated = value.get("kind")
    if isinstance(stated, str) and stated in kinds:
        return kinds[stated]
    raise _other(f"a mapping whose kind is one of {', '.join(kinds)}", value, place)


def _object(kind: Any, parameters: tuple[Any, ...], value: Any, place: str) -> Any:
    """Return an object of ours, of an enumeration, or of pydantic's."""
    if kind is Any or kind is object or isinstance(value, kind):
        return value
    if issubclass(kind, Enum):
        return _member(kind, value, place)
    if not issubclass(kind, Frozen):
        return _validated(kind, value, place)
    if not isinstance(value, Mapping):
        raise _other("a mapping", value, place)
    _check_names(kind, value, place)
    bound = dict(zip(getattr(kind, "__parameters__", ()), parameters, strict=False))
    hints = _hints(kind)
    return kind(**{
        name: _read(bound.get(hints[name], hints[name]), item, f"{place}.{name}" if place else name)
        for name, item in value.items()
    })  # fmt: skip


def _check_names(kind: type[Frozen], value: Mapping[str, Any], place: str) -> None:
    where, (missing, unknown) = place or "the document", kind.odd_names(value)
    if missing:
        raise Mismatch(f"{where} lacks {', '.join(missing)}")
    if unknown:
        raise Mismatch(f"{where} has {', '.join(_cut(str(name)) for name in unknown)}, which it does not know")


def _member(kind: type[Enum], value: Any, place: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise _other(f"one of {', '.join(str(one.value) for one in kind)}", value, place) from None


def _validated(kind: Any, value: Any, place: str) -> Any:
    """Leave a type of the deploy profile to pydantic, strictly, and give its first complaint in our form."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (place, *first["loc"])))
        raise Mismatch(f"{where}: {first['msg']}") from None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _name(hint: Any) -> str:
    if hint in _NAMES:
        return _NAMES[hint]
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    return "a list" if get_origin(hint) is tuple else "a text or a mapping"


def _other(expected: str, value: Any, place: str) -> Mismatch:
    return Mismatch(f"{place or 'the document'} is {_cut(repr(value))}; expected {expected}")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
