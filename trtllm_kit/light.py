"""``dataclass(frozen=True)`` that compiles nothing: the same classes in a tenth of the time.

The standard decorator writes and compiles six methods for each class; a verb that imports forty such classes waits for
that longer than for its own work. Here the methods are written once, over the fields that the standard module finds,
so that ``replace``, ``fields`` and pattern matching work as ever. Modules that a verb imports at its start use it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen):
        """Return the decorator of a frozen class without slots; raises ``TypeError`` where it is to be another."""
        if not frozen:
            raise TypeError("every class that is made here is frozen")
        return _made


def _made(cls: type) -> type:
    """Give a class its fields, and the methods that all have."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    found = dataclasses.fields(made)
    made._names = tuple(field.name for field in found)
    made._known = frozenset(made._names)
    made._defaults = {field.name: field.default for field in found if field.default is not _NONE}
    made._makers = {field.name: field.default_factory for field in found if field.default_factory is not _NONE}
    for name in ("__init__", "__setattr__", "__delattr__", "__eq__", "__hash__", "__repr__"):
        setattr(made, name, getattr(_Methods, name))
    return cls


_NONE = dataclasses.MISSING


class _Methods:
    """The methods of every class; an object's fields are in its ``__dict__``."""

    _names: tuple[str, ...]
    _known: frozenset[str]
    _defaults: dict[str, Any]
    _makers: dict[str, Any]

    def __init__(self, *given: object, **named: object) -> None:
        """Take the fields in their order or by name; raises ``TypeError`` for one missing, unknown or given twice."""
        held, twice = self.__dict__, False
        held.update(self._defaults)
        if given:
            names = self._names
            held.update(zip(names, given, strict=False))
            twice = len(given) > len(names) or (bool(named) and not named.keys().isdisjoint(names[: len(given)]))
        held.update(named)
        if twice or held.keys() != self._known:
            _complete(self, given, named)

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        """Refuse."""
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse."""
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same class with the same values."""
        if type(self) is not type(other):
            return NotImplemented
        mine, others = self.__dict__, other.__dict__
        return all(mine[name] == others[name] for name in self._names)

    def __hash__(self) -> int:
        """Hash the values."""
        return hash(tuple(self.__dict__[name] for name in self._names))

    def __repr__(self) -> str:
        """Spell it as it is made."""
        shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._names)
        return f"{type(self).__qualname__}({shown})"


def _complete(made: _Methods, given: tuple[object, ...], named: dict[str, object]) -> None:
    """Make the values that are made for each object; raises ``TypeError`` for what was given wrongly."""
    names, held = made._names, made.__dict__
    for name in made._makers.keys() - held.keys():
        held[name] = made._makers[name]()
    kind = type(made).__name__
    if len(given) > len(names):
        raise TypeError(f"{kind}() takes {len(names)} values but {len(given)} were given")
    odd = {
        "twice": named.keys() & set(names[: len(given)]),
        "unknown": named.keys() - made._known,
        "missing": set(made._known - held.keys()),
    }
    wrong = "; ".join(f"{how}: {', '.join(sorted(which))}" for how, which in odd.items() if which)
    if wrong:
        raise TypeError(f"{kind}() got values wrongly, {wrong}")
