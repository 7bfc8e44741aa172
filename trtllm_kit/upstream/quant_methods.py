"""Checkpoints that come quantised: what can be done with them other than to convert them."""

from __future__ import annotations

from functools import cache

from trtllm_kit.upstream.facts import Fact, rows


class QuantMethod(Fact):
    """One ``quant_method`` of ``config.json``; its releases are those that read such a folder in some way."""

    method: str
    scheme: str | None = None
    """What the method calls one of its formats, where they differ in what can be done; None for all others."""
    instead: str
    """What to do instead of converting it, as the end of a sentence that begins with "or"."""


class _BlockShape(Fact):
    method: str
    rows: int
    columns: int


def quant_method(name: str, scheme: str = "") -> QuantMethod | None:
    """Return what is known of a method, of that scheme where it has a row; None for an unknown method."""
    found = [row for row in rows_of_methods() if row.method == name and row.scheme in (scheme, None)]
    return next(iter(sorted(found, key=lambda row: row.scheme is None)), None)


@cache
def block_shape(name: str) -> tuple[int, int]:
    """Return the rows and columns that share a scale under a method with blocks; raises ``KeyError`` for others."""
    found = (row for row in rows("quant_methods", "block_shapes", _BlockShape) if row.method == name)
    row = next(found, None)
    if row is None:
        raise KeyError(name)
    return row.rows, row.columns


@cache
def rows_of_methods() -> tuple[QuantMethod, ...]:
    """Return every known method."""
    return rows("quant_methods", "methods", QuantMethod)
