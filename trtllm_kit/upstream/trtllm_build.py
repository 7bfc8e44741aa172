"""The options of ``trtllm-build``: which release takes which, with what values and default; what became of others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "trtllm_build"
_SWITCH = ("enable", "disable")
_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "half": "float16"}
FlagValue = bool | int | str | tuple[str, ...]


class BuildFlag(Fact):
    """One option in one range of releases."""

    flag: str
    """With its dashes, e.g. ``--max_batch_size``."""
    takes: Literal["whole", "text", "choice", "words", "switch", "flag"]
    choices: tuple[str, ...] = ()
    default: int | str | None = None
    """What the release does without it; None where it names nothing, and for a flag that stands alone."""
    aliases: tuple[str, ...] = ()
    plugin: bool = False
    deprecated: bool = False

    @property
    def values(self) -> str:
        """What it takes, in words."""
        if self.takes == "words":
            return "words" + (f" of {', '.join(self.choices)}" if self.choices else "")
        if self.takes in ("choice", "switch"):
            return f"one of {', '.join(self._allowed)}"
        return {"whole": "a whole number", "text": "text", "flag": "true or false"}[self.takes]

    def accepts(self, value: FlagValue) -> bool:
        """Whether the value is one that the option takes, as a profile spells it."""
        if self.takes == "flag":
            return isinstance(value, bool)
        if self.takes == "whole":
            return isinstance(value, int) and not isinstance(value, bool)
        if self.takes == "words":
            words = (value,) if isinstance(value, str) else value
            return isinstance(words, tuple) and all(not self.choices or word in self.choices for word in words)
        return isinstance(value, str) and (self.takes == "text" or value in self._allowed)

    def nearest(self, value: FlagValue) -> str | None:
        """Return the accepted value that one which is not was most likely meant to be; None when none is near."""
        if isinstance(value, bool) and self.takes == "switch":
            return _SWITCH[0] if value else _SWITCH[1]
        if self.takes == "flag":
            return {"enable": "true", "disable": "false"}.get(str(value))
        text = _TYPES.get(str(value).lower(), str(value).lower())
        close = difflib.get_close_matches(text, self._allowed, n=1)
        return close[0] if close else None

    def argv(self, value: FlagValue) -> tuple[str, ...]:
        """Return the words of the command line that set the value."""
        if self.takes == "flag":
            return (self.flag,) if value else ()
        words = value if isinstance(value, tuple) else (str(value),)
        return (self.flag, *words)

    @property
    def _allowed(self) -> tuple[str, ...]:
        return _SWITCH if self.takes == "switch" else self.choices


class GoneFlag(Fact):
    """An option that releases from ``until`` on do not take."""

    flag: str
    instead: str
    """What takes its place, in words."""


class BuildField(Fact):
    """One field of ``BuildConfig`` in one range of releases."""

    field: str
    default: bool | int | str | None = None
    written: bool = True
    """Whether an engine's ``config.json`` has it."""


class Mode(Fact):
    """One word of ``--speculative_decoding_mode``."""

    mode: str
    number: int
    heads: tuple[str, ...] = ()
    """Architectures of a checkpoint that holds the heads which draft, the usual one first; none without heads."""
    reads: tuple[str, ...] = ()
    """What of such a checkpoint's ``config.json`` is read."""
    fixed: tuple[str, ...] = ()
    """Those of its numbers whose product is how many tokens are drafted, whatever the builder is told."""


def build_flag(version: str, name: str) -> BuildFlag | None:
    """Return what that release says of an option, found by its name or an alias; None when it does not take it."""
    return next((row for row in build_flags(version) if name in (row.flag, *row.aliases)), None)


@cache
def build_flags(version: str) -> tuple[BuildFlag, ...]:
    """Return every option of that release, in the table's order; empty where there is no ``trtllm-build``."""
    return tuple(row.seen_from(version) for row in _flags() if row.holds(version))


def unknown_build_flags(version: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the options that the release does not take, in order."""
    return tuple(name for name in names if build_flag(version, name) is None)


def gone_flag(version: str, name: str) -> GoneFlag | None:
    """Return what took the place of an option that earlier releases had; None for any other."""
    known = (row for row in rows(_TABLE, "gone", GoneFlag) if row.flag == name)
    return next((row for row in known if not row.holds(version)), None)


def near_build_flag(version: str, name: str) -> str | None:
    """Return the option of that release whose name is nearest; None when none is near."""
    close = difflib.get_close_matches(name, [row.flag for row in build_flags(version)], n=1)
    return close[0] if close else None


def releases_with_build_flag(name: str, versions: Iterable[str]) -> tuple[str, ...]:
    """Return those of the releases that take an option, in order."""
    return tuple(version for version in versions if build_flag(version, name) is not None)


@cache
def build_fields(version: str) -> tuple[BuildField, ...]:
    """Return the fields of ``BuildConfig`` in that release."""
    return tuple(row.seen_from(version) for row in rows(_TABLE, "fields", BuildField) if row.holds(version))


def speculative_mode(version: str, mode: str) -> int | None:
    """Return the number by which an engine's ``config.json`` names a speculative mode; None where there is none."""
    known = (row for row in rows(_TABLE, "modes", Mode) if row.mode == mode)
    return next((row.number for row in known if row.holds(version)), None)


def speculative_mode_name(version: str, number: int) -> str | None:
    """Return the speculative mode that an engine's ``config.json`` names by a number; None where there is none."""
    known = (row for row in rows(_TABLE, "modes", Mode) if row.number == number)
    return next((row.mode for row in known if row.holds(version)), None)


class _Adapter(Fact):
    name: str
    module: str


def adapter_module(layer: str) -> str | None:
    """Return what ``--lora_target_modules`` calls a linear layer of the Hugging Face layout; None for another."""
    return next((row.module for row in rows(_TABLE, "adapters", _Adapter) if row.name == layer), None)


def mode_of(version: str, mode: str) -> Mode | None:
    """Return what is known of a speculative mode in that release; None where it has none of that name."""
    known = (row for row in rows(_TABLE, "modes", Mode) if row.mode == mode)
    return next((row.seen_from(version) for row in known if row.holds(version)), None)


def every_build_flag() -> tuple[str, ...]:
    """Return every option that ``trtllm-build`` of some release takes, by its name with dashes."""
    return tuple(dict.fromkeys(row.flag for row in _flags()))


@cache
def _flags() -> tuple[BuildFlag, ...]:
    return rows(_TABLE, "flags", BuildFlag)
