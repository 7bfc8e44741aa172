"""Options of ``trtllm-serve`` and its sub-commands: which release takes which, under which names."""

from __future__ import annotations

import difflib
from functools import cache

from trtllm_kit.upstream.facts import Fact, rows

SERVE = "trtllm-serve"
COMMANDS = ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")
"""Its sub-commands beside ``serve``, which may be left out."""


class ServeOption(Fact):
    """One option in one range of releases."""

    program: str
    flag: str
    """Its first name."""
    aliases: tuple[str, ...] = ()
    type: str
    """``flag`` takes no value; ``choice`` one of ``choices``."""
    default: bool | int | float | str | None = None
    choices: tuple[int | str | None, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it goes by."""
        return (self.flag, *self.aliases)


def serve_options(version: str, program: str = SERVE) -> tuple[ServeOption, ...]:
    """Return the options that a release takes; none where they were not read."""
    return tuple(row.seen_from(version) for row in _options() if row.program == program and row.holds(version))


def option_named(version: str, name: str, program: str = SERVE) -> ServeOption | None:
    """Return the option of that name in a release; None when it has none."""
    return next((row for row in serve_options(version, program) if name in row.names), None)


def option_of_flag(version: str, flag: str, program: str = SERVE) -> ServeOption | None:
    """Return the option of that first name in a release; None when it has none."""
    return next((row for row in serve_options(version, program) if row.flag == flag), None)


def option_anywhere(name: str, program: str = SERVE) -> ServeOption | None:
    """Return the option of that name in the first release that has it; None when none was read with it."""
    return next((row for row in _options() if row.program == program and name in row.names), None)


def rows_of(flag: str, program: str = SERVE) -> tuple[ServeOption, ...]:
    """Return every row of the option of that first name, one for each range of releases."""
    return tuple(row for row in _options() if row.program == program and row.flag == flag)


def near_option(version: str, name: str, program: str = SERVE) -> str | None:
    """Return the option of a release that a name which it does not take was most likely meant to be."""
    names = [one for row in serve_options(version, program) for one in row.names]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.75)), None)


@cache
def _options() -> tuple[ServeOption, ...]:
    return tuple(row for row in rows("scripts", "flags", ServeOption) if row.program.startswith(SERVE))
