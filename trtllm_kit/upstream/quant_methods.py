"""Checkpoints that come quantised: what can be done with them other than to convert them."""

from __future__ import annotations

from functools import cache

from trtllm_kit.upstream.facts import Fact, rows


class QuantMethod(Fact):
    """One ``quant_method`` of ``config.json``; its releases are those that read such a folder in some way."""

    method: str
    instead: str
    """What to do instead of converting it, as the end of a sentence that begins with "or"."""


def quant_method(name: str) -> QuantMethod | None:
    """Return what is known of a method, or None."""
    return next((row for row in rows_of_methods() if row.method == name), None)


@cache
def rows_of_methods() -> tuple[QuantMethod, ...]:
    """Return every known method."""
    return rows("quant_methods", "methods", QuantMethod)
