"""What a builder's messages mean: cause and fix by pattern, and the phases its log names."""

from __future__ import annotations

import re
from functools import cache

from trtllm_kit.frozen import Frozen
from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "build_errors"
WRITTEN = "written"
"""The phase that says a rank is on disk."""
_SHELL = 128
"""Added to a signal's number by shells, containers and launchers."""


class _Error(Fact):
    name: str
    pattern: str
    cause: str
    """``{0}`` and so on stand for the groups of the pattern."""
    fix: str


class _Signal(Fact):
    name: str
    number: int
    cause: str
    fix: str


class Phase(Fact):
    """One phase of a build, and what the log says when it begins."""

    name: str
    pattern: str
    label: str


class Meaning(Frozen):
    """What a failure comes down to."""

    name: str
    cause: str
    fix: str


def meaning_of(text: str, code: int, version: str) -> Meaning | None:
    """Return what a builder's output and exit code (minus a signal's number) mean; None when neither is known."""
    for row in rows(_TABLE, "errors", _Error):
        found = re.search(row.pattern, text) if row.holds(version) else None
        if found is not None:
            return Meaning(name=row.name, cause=row.cause.format(*found.groups()), fix=row.fix)
    number = -code if code < 0 else code - _SHELL
    known = (row for row in rows(_TABLE, "signals", _Signal) if row.number == number)
    return next((Meaning(name=row.name, cause=row.cause, fix=row.fix) for row in known), None)


def phase_of(line: str) -> Phase | None:
    """Return the phase that a line of a builder's log begins; None for any other line."""
    return next((phase for phase in phases() if re.search(phase.pattern, line)), None)


@cache
def phases() -> tuple[Phase, ...]:
    """Return every phase, in order."""
    return rows(_TABLE, "phases", Phase)


@cache
def error_names() -> tuple[str, ...]:
    """Return the name of every known message."""
    return tuple(row.name for row in rows(_TABLE, "errors", _Error))
