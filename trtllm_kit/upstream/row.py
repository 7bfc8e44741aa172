"""The base of every row of an upstream table: an immutable object that is cheap to define and to make.

A verb imports dozens of row types and makes hundreds of rows. Building validators for them took a tenth of a second,
to check files that come with the kit; ``tests/upstream/test_rows.py`` checks every row against its type instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Frozen:
    """Keyword-only fields from the annotations; no value can be changed afterwards."""

    _fields: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        """Collect the fields of the class and its bases."""
        own = {name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")}
        cls._fields = cls._fields | own
        cls._defaults = cls._defaults | {name: cls.__dict__[name] for name in own if name in cls.__dict__}
        cls._required = cls._fields - cls._defaults.keys()

    def __init__(self, **values: Any) -> None:
        """Take the values; raises ``TypeError`` for a field that is missing or unknown."""
        if not self._required <= values.keys() <= self._fields:
            odd = ", ".join(sorted((self._required - values.keys()) | (values.keys() - self._fields)))
            raise TypeError(f"{type(self).__name__}: missing or unknown: {odd}")
        self.__dict__.update(self._defaults)
        self.__dict__.update(values)

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        """Refuse."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        """Whether the other is a row of the same type with the same values."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Hash the values; a row that holds a mapping has no hash."""
        return hash(tuple(sorted(vars(self).items())))

    def __repr__(self) -> str:
        """Spell it as it is made."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def changed(self, **values: Any) -> Self:
        """Return it with other values in some fields."""
        return type(self)(**(vars(self) | values))

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return dict(vars(self))
