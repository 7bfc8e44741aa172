"""What values the parameters of an ``inflight_batcher_llm`` repository take, and which must be there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "triton_parameters"
BOOLEANS = frozenset({"true", "True", "TRUE", "1", "false", "False", "FALSE", "0"})
Type = Literal["word", "boolean", "count", "share", "counts", "sets"]


class ParameterValue(Fact):
    """What one parameter of one model takes."""

    model: str
    key: str
    type: Type
    values: tuple[str, ...] = ()
    """The words of a ``word``."""
    otherwise: str
    """What another value does."""

    def takes(self, text: str) -> bool:
        """Whether a value is one of them."""
        return text in self.values if self.type == "word" else _TESTS[self.type](text)

    @property
    def wanted(self) -> str:
        """What it takes, in words."""
        return ", ".join(self.values) or _WANTED[self.type]


class Conflict(Fact):
    """A value that does harm with a backend."""

    key: str
    value: str
    backend: str
    """Empty for any."""
    otherwise: str


class _Needed(Fact):
    key: str


def parameter_value(model: str, key: str, version: str) -> ParameterValue | None:
    """Return what a parameter takes in that release; None where any value will do, or nothing is known."""
    return next((row for row in _values() if (row.model, row.key) == (model, key) and row.holds(version)), None)


def needed_parameters(version: str) -> tuple[str, ...]:
    """Return the parameters that the C++ backend of that release wants to be there, even if empty."""
    return tuple(row.key for row in rows(_TABLE, "needed", _Needed) if row.holds(version))


def conflicts(version: str) -> tuple[Conflict, ...]:
    """Return the values that do harm in that release."""
    return tuple(row for row in rows(_TABLE, "conflicts", Conflict) if row.holds(version))


def _is_share(text: str) -> bool:
    return re.fullmatch(r"0?\.\d+|[01](\.\d*)?", text.strip()) is not None and float(text) <= 1


_TESTS: dict[str, Callable[[str], bool]] = {
    "boolean": BOOLEANS.__contains__,
    "count": lambda text: text.strip().isdigit(),
    "share": _is_share,
    "counts": lambda text: re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*,?", text) is not None,
    "sets": lambda text: re.fullmatch(r"\s*\d+\s*([,;]\s*\d+\s*)*;?", text) is not None,
}
_WANTED = {
    "boolean": "true or false",
    "count": "a whole number",
    "share": "a number from 0 to 1",
    "counts": "whole numbers with commas between",
    "sets": "numbers of GPUs with commas between, and semicolons between instances",
}


@cache
def _values() -> tuple[ParameterValue, ...]:
    return rows(_TABLE, "values", ParameterValue)
