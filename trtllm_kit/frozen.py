"""The base of what is decided or known: an immutable object that is cheap to define and to make.

A verb imports about a hundred such types and makes thousands of objects. Building validators for them took longer than
the plan itself, to check what our own code makes: its types are checked before it runs, and a document that comes from
a file is checked by ``reading``. What an operator writes is pydantic's; the words are the same on both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Frozen:
    """Keyword-only fields from the annotations; no value can be changed afterwards."""

    __slots__ = ("__dict__", "__weakref__", "_hashed")
    _hashed: int

    field_names: ClassVar[tuple[str, ...]] = ()
    """Names, those of the bases first, in the order they are declared; the order of documents too."""
    _known: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    _defaults: ClassVar[dict[str, Any]] = {}
    _floats: ClassVar[tuple[str, ...]] = ()
    unsaid: ClassVar[frozenset[str]] = frozenset()
    """Fields that a document leaves out while they have their default, so that adding them changes no digest."""

    def __init_subclass__(cls) -> None:
        """Collect the fields of the class and its bases."""
        super().__init_subclass__()
        own = {name: kind for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")}
        cls.field_names = tuple(dict.fromkeys((*cls.field_names, *own)))
        cls._defaults = cls._defaults | {name: cls.__dict__[name] for name in own if name in cls.__dict__}
        cls._known = frozenset(cls.field_names)
        cls._required = cls._known - cls._defaults.keys()
        floats = (name for name, kind in own.items() if kind in ("float", "float | None"))
        cls._floats = (*(name for name in cls._floats if name not in own), *floats)

    def __init__(self, **values: Any) -> None:
        """Take the values, whole numbers as the floats that some fields are.

        Raises ``TypeError`` for a field that is missing or unknown.
        """
        missing, unknown = self.odd_names(values)
        if missing or unknown:
            odd = ", ".join((*missing, *unknown))
            raise TypeError(f"{type(self).__name__}: missing or unknown: {odd}")
        held = self.__dict__
        held.update(self._defaults)
        held.update(values)
        for name in self._floats:
            if type(held[name]) is int:
                held[name] = float(held[name])

    @classmethod
    def odd_names(cls, given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Return the fields that are missing among the given ones, and the given ones that are no fields."""
        if cls._required <= given.keys() <= cls._known:
            return [], []
        missing = [name for name in cls.field_names if name in cls._required and name not in given]
        return missing, [name for name in given if name not in cls._known]

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        """Refuse."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be taken away")

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same type with the same values."""
        return self is other or (type(self) is type(other) and self.__dict__ == other.__dict__)

    def __hash__(self) -> int:
        """Hash the values, once; an object that holds a mapping has no hash."""
        try:
            known: int = self._hashed
        except AttributeError:
            held = self.__dict__
            known = hash((type(self), *(held[name] for name in self.field_names)))
            object.__setattr__(self, "_hashed", known)
        return known

    def __repr__(self) -> str:
        """Spell it as it is made."""
        held = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.field_names)
        return f"{type(self).__name__}({held})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Make a copy as the original was made."""
        return _made, (type(self), self.__dict__)

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return it with other values in some fields; raises ``TypeError`` for an unknown one."""
        return type(self)(**{**self.__dict__, **update})

    def model_dump(self, *, mode: str = "json") -> dict[str, Any]:  # noqa: ARG002  # as pydantic's
        """Return it as JSON's own types, to be read and not to be changed; fields in the order they are declared."""
        held, unsaid = self.__dict__, self.unsaid
        return {
            name: _plain(held[name])
            for name in self.field_names
            if name not in unsaid or held[name] != self._defaults[name]
        }

    def model_dump_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.model_dump(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def model_validate(cls, document: object) -> Self:
        """Make it of plain data, or of objects in their places; raises ``reading.Mismatch``, a ``ValueError``."""
        from trtllm_kit.reading import read

        return read(cls, document)

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Make it of JSON; raises ``ValueError`` for text that is none, ``reading.Mismatch`` for another document."""
        from trtllm_kit.reading import read
        from trtllm_kit.strict_json import parse_json

        return read(cls, parse_json(text.encode() if isinstance(text, str) else text))


def _made(kind: type[Frozen], values: dict[str, Any]) -> Frozen:
    return kind(**values)


_AS_IT_IS = (str, int, float, bool, type(None))


def _plain(value: Any) -> Any:
    """Return a value as JSON's own types; another library's object says for itself how it looks there."""
    if type(value) in _AS_IT_IS:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return _plain_items(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _plain_items(items: Sequence[Any]) -> list[Any]:
    """Return the items of a list; one that stands several times in a row, as layers do, is spelt out once."""
    made: list[Any] = []
    last = plain = None
    for item in items:
        if item is not last or not made:
            last, plain = item, _plain(item)
        made.append(plain)
    return made
