"""What every upstream table has in common: version ranges, certainty, sources, and one loader."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Literal, Self, TypeVar

from packaging.version import InvalidVersion, Version

from trtllm_kit.frozen import Frozen
from trtllm_kit.resources import package_file
from trtllm_kit.shipped_yaml import parse_yaml, read_shipped

MAIN = "main"
"""The development branch: later than every numbered release."""
Certainty = Literal["read", "near", "recalled"]
"""Read in that release's own source, read in a neighbouring revision, or recalled and not checked."""


class Fact(Frozen):
    """One fact about a range of releases and where it was read."""

    since: str | None = None
    """First release with it; None when it was there in the first release the kit knows."""
    until: str | None = None
    """First release without it; None while it is still there."""
    certainty: Certainty
    source: str
    read_in: tuple[str, ...] = ()
    """Releases whose own text the source is; empty when it speaks of the whole range."""

    def holds(self, version: str) -> bool:
        """Whether the fact holds for that release."""
        return in_range(version, self.since, self.until)

    def seen_from(self, version: str) -> Self:
        """Return the fact as that release has it: read in another release's text, it is only near."""
        if self.certainty != "read" or not self.read_in or version in self.read_in:
            return self
        return self.model_copy(update={"certainty": "near"})


F = TypeVar("F", bound=Fact)


@cache
def version_key(version: str) -> tuple[int, Version]:
    """Return a sort key for a release name; ``main`` sorts last. Raises ``ValueError`` for no version at all."""
    if version == MAIN:
        return (1, Version("0"))
    try:
        return (0, Version(version))
    except InvalidVersion:
        raise ValueError(f"{version!r} is not a TensorRT-LLM version") from None


def in_range(version: str, since: str | None, until: str | None) -> bool:
    """Whether ``since <= version < until``, with an absent bound open."""
    key = version_key(version)
    after = since is None or key >= version_key(since)
    return after and (until is None or key < version_key(until))


@cache
def read_table(name: str) -> dict[str, Any]:
    """Read ``upstream/<name>.yaml``: lists of rows, ``sources`` (spelt out by code) and ``defaults`` of every row.

    A source is a text, or a mapping of ``where`` and ``read_in``: the releases whose own text it is.
    A table of many hundred rows is JSON in the first place.
    """
    path = package_file("upstream", f"{name}.yaml")
    if path.is_file():
        return read_shipped(path, parse_yaml)
    document: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
    return document


def rows(table: str, section: str, row_type: type[F], **named: str) -> tuple[F, ...]:
    """Build the rows of one section, each ``source`` code replaced by what it stands for.

    Where a field is named with a text, only the rows with that text in it; the others are not made at all.
    """
    document = read_table(table)
    wanted = named.items()
    chosen = (entry for entry in document[section] if wanted <= entry.items()) if named else document[section]
    return tuple(row_type(**held(spelt_out(entry, document))) for entry in chosen)


def held(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table with the values that its object holds: tuples for lists, keys that are whole numbers."""
    return {name: _held(value) if type(value) in _NESTED else value for name, value in row.items()}


_NESTED = (list, dict)


def _held(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_held, value))
    if isinstance(value, dict):
        return {int(key) if key.isdecimal() else key: _held(one) for key, one in value.items()}
    return value


def spelt_out(entry: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the table's defaults filled in and its source spelt out."""
    whole: dict[str, Any] = {**document.get("defaults", {}), **entry}
    source: str | dict[str, Any] = document["sources"][whole["source"]]
    if isinstance(source, str):
        return {**whole, "source": source}
    return {**whole, "source": source["where"], "read_in": tuple(source["read_in"])}
