"""Environment variables of the server: what each does, what it takes, and in which releases it matters."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

FAMILIES = ("TRTLLM_", "TRT_LLM_", "TLLM_", "NCCL_", "CUDA_")
"""How the names begin that the catalogue speaks of; others belong to other software."""
_FAMILY = re.compile("|".join(FAMILIES))
_NUMBER = re.compile(r"-?[0-9]{1,18}")
"""What every reader holds in 64 bits."""
_SLIP = 0.9
"""Similarity of a name with one slip of the finger; farther ones are often variables of their own."""

_SWITCHES = dict.fromkeys(("true", "yes", "on"), "1") | dict.fromkeys(("false", "no", "off"), "0")


class Variable(Fact):
    """One variable in one range of releases."""

    name: str
    does: str
    takes: Literal["flag", "number", "words", "text"]
    allowed: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    default: str | None = None
    """What holds without it; None when that is not a fixed value, or not known."""

    @property
    def values(self) -> str:
        """What it takes, in words."""
        if self.takes == "number" and self.least is not None:
            return f"a whole number from {self.least}" + (f" to {self.most}" if self.most is not None else " on")
        if self.takes == "words":
            return f"one of {', '.join(self.allowed)}"
        return {"flag": "0 or 1", "number": "a whole number"}.get(self.takes, "text")

    def accepts(self, value: str) -> bool:
        """Whether the value is one that the reader of the variable understands."""
        if self.takes == "number":
            number = int(value) if _NUMBER.fullmatch(value) else None
            return number is not None and self._within(number)
        return {"flag": value in ("0", "1"), "words": value in self.allowed}.get(self.takes, True)

    def nearest(self, value: str) -> str | None:
        """Return the accepted value that one which is not was most likely meant to be; None when none is near."""
        if self.takes == "number":
            return self._clamped(int(value)) if _NUMBER.fullmatch(value) else None
        switch = _SWITCHES.get(value.lower())
        if switch is not None and self.accepts(switch):
            return switch
        spelled = {word.lower(): word for word in reversed(self.allowed)}  # the first spelling wins
        close = difflib.get_close_matches(value.lower(), spelled, n=1)
        return spelled[close[0]] if close else None

    def _clamped(self, number: int) -> str:
        raised = number if self.least is None else max(number, self.least)
        return str(raised if self.most is None else min(raised, self.most))

    def _within(self, number: int) -> bool:
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)


@cache
def variables() -> tuple[Variable, ...]:
    """Return every row of the catalogue, in its order."""
    return rows("environment", "variables", Variable)


def variable(name: str, version: str) -> Variable | None:
    """Return what a variable does in that release, or None when it is unknown, or means nothing there."""
    return next((row.seen_from(version) for row in variables() if row.name == name and row.holds(version)), None)


def ranges_of(name: str) -> tuple[Variable, ...]:
    """Return the rows of one variable, whatever the release; empty for an unknown one."""
    return tuple(row for row in variables() if row.name == name)


def near_name(name: str) -> str | None:
    """Return the known variable that a name of the same families was most likely meant to be, or None."""
    if not _FAMILY.match(name.upper()):
        return None
    names = dict.fromkeys(row.name for row in variables())
    close = difflib.get_close_matches(name.upper(), names, n=1, cutoff=_SLIP)
    return close[0] if close else None
