"""What was seen to fail, or is refused, in engines, commands, repositories and launches; and options that are gone."""

from __future__ import annotations

from functools import cache

from trtllm_kit.upstream.facts import Fact, rows, version_key

_TABLE = "failures"


class Failure(Fact):
    """One thing that does not work in a range of releases."""

    name: str
    note: str
    """What it does there, as the end of a sentence."""
    value: int = 0
    """The number it is compared with, where there is one."""
    text: str = ""
    """A version it is compared with, where there is one."""
    architectures: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


class GoneFlag(Fact):
    """An option of a command that later releases do not take."""

    program: str
    flag: str
    removed: str
    replacement: str

    def gone(self, version: str) -> bool:
        """Whether that release has it no more."""
        return version_key(version) >= version_key(self.removed)


class Exporter(Fact):
    """The exporter that an architecture needs."""

    architecture: str
    exporter: str
    fails_below: str


def failure(name: str, version: str) -> Failure | None:
    """Return what that release does wrong under that name; None when nothing is known of it."""
    return next((row.seen_from(version) for row in _named(name) if row.holds(version)), None)


def known_failures() -> tuple[Failure, ...]:
    """Return every row."""
    return rows(_TABLE, "failures", Failure)


@cache
def gone_flags() -> tuple[GoneFlag, ...]:
    """Return every option that is gone from a release the kit knows."""
    return rows(_TABLE, "flags", GoneFlag)


@cache
def exporters() -> tuple[Exporter, ...]:
    """Return every architecture that needs a newer exporter."""
    return rows(_TABLE, "exporters", Exporter)


@cache
def _named(name: str) -> tuple[Failure, ...]:
    return rows(_TABLE, "failures", Failure, name=name)
