"""What each setting of the engine road meant, and what it becomes on the road without engines."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "engine_settings"
_NOT_ASKED = frozenset({"", "false"})
"""How values read that ask for nothing, whatever the setting."""
_SPELLINGS = {"enable": "true", "disable": "false", "none": "", "null": ""}
How = Literal["exact", "approximate", "none", "dropped"]
Takes = Literal["", "whole", "number", "switch", "flag", "word", "text", "words", "counts", "size", "cores", "seconds"]


class Meaning(Fact):
    """What some settings of some readers meant, for some of their values, and what they become."""

    reader: tuple[str, ...]
    """Whose words they are, e.g. ``build`` or ``parameter``; the table's head lists them."""
    names: tuple[str, ...]
    """One that ends in ``*`` stands for all names that begin so."""
    models: tuple[str, ...] = ()
    """Models of a Triton repository that it speaks of; all when empty."""
    when: tuple[str, ...] = ()
    """Values it speaks of, as ``plain_value`` spells them; all when empty."""
    unasked: tuple[str, ...] = ()
    """Values beside empty and false that ask for nothing."""
    means: str
    how: How
    takes: Takes = ""
    key: str = ""
    """Dotted key of a deploy profile."""
    llm: str = ""
    """Dotted key of the LLM API, where a profile has none."""
    values: dict[str, str] | None = None
    """From the old word to the new one; any other word has no equivalent."""
    part: str = ""
    """Names what has to be read together with other settings."""
    note: str = ""
    lost: str = ""
    instead: str = ""
    secret: bool = False
    """Whether the value holds a secret."""

    def speaks_of(self, name: str, model: str) -> bool:
        """Whether it speaks of a setting of that name and model."""
        named = any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in self.names)
        return named and (not self.models or not model or model in self.models)

    def fits(self, value: object) -> bool:
        """Whether it speaks of that value."""
        return not self.when or plain_value(value) in self.when

    def asks_nothing(self, value: object) -> bool:
        """Whether the value is one that asks for nothing.

        A switch that becomes one says something when it is off, and so does a value that the row speaks of by name.
        """
        text = plain_value(value)
        says = text in self.when or (self.takes in ("switch", "flag") and self.how == "exact" and text == "false")
        return text in self.unasked or (text in _NOT_ASKED and not says)


class ClientTensor(Fact):
    """Tensors of the models around an engine, and the one of the llmapi model in their place."""

    side: Literal["input", "output"]
    old: tuple[str, ...]
    new: str
    """Empty where none has their place."""
    how: Literal["exact", "approximate", "none"]
    note: str


class OldMetric(Fact):
    """One metric family of a server with engines, and what shows the same in its place."""

    old: str
    label: str
    """The label that tells its series apart."""
    series: tuple[str, ...]
    """Values of that label."""
    new: str
    how: Literal["exact", "none"]
    note: str


class RuntimeDefault(Fact):
    """What the runtime of engines does where no parameter says it, and a profile's own default differs."""

    name: str
    """The parameter."""
    key: str
    """Dotted key of a deploy profile."""
    value: Any
    """What the key has to say for the same."""
    means: str


class _Words(Fact):
    words: tuple[str, ...]
    format: str


class _KeptOut(Fact):
    words: tuple[str, ...]


class _Nearest(Fact):
    format: str
    instead: tuple[str, ...]


class _Gpu(Fact):
    words: tuple[str, ...]
    name: str


class _Label(Fact):
    name: str
    label: str


class _Served(Fact):
    old: str
    new: str


def meaning(reader: str, name: str, value: object, model: str = "") -> Meaning | None:
    """Return what a setting meant: exact names come before patterns, in the table's order; None for one unknown."""
    known = [row for row in _of_reader(reader) if row.speaks_of(name, model) and row.fits(value)]
    exact = (row for row in known if name in row.names)
    return next(exact, known[0] if known else None)


def is_named(reader: str, name: str) -> bool:
    """Whether the table names a setting itself, and not by a pattern alone."""
    return any(name in row.names for row in _of_reader(reader))


@cache
def meanings() -> tuple[Meaning, ...]:
    """Return every row of the settings, in the table's order."""
    return rows(_TABLE, "settings", Meaning)


@cache
def client_tensors() -> tuple[ClientTensor, ...]:
    """Return the tensors of requests and answers."""
    return rows(_TABLE, "clients", ClientTensor)


@cache
def old_metrics() -> tuple[OldMetric, ...]:
    """Return the metric families."""
    return rows(_TABLE, "metrics", OldMetric)


@cache
def runtime_defaults() -> tuple[RuntimeDefault, ...]:
    """Return what a runtime of engines does by itself, where that has to be written for the PyTorch backend."""
    return rows(_TABLE, "runtime_defaults", RuntimeDefault)


@cache
def served_models() -> dict[str, str]:
    """Return what the label ``model`` becomes by its old value; empty where a model of that kind is no longer there."""
    return {row.old: row.new for row in rows(_TABLE, "models", _Served)}


def format_of(word: str) -> str | None:
    """Return a profile's word for a format of rank files, a quantiser or a converter; None where none is made of it."""
    known = (row for row in rows(_TABLE, "formats", _Words) if word in (*row.words, row.format) and row.format)
    return next((row.format for row in known), None)


def stays_in_16_bit(layer: str) -> bool:
    """Whether an engine's layer is one that is quantised by no default, so that to leave it out says nothing."""
    return any(layer.rpartition(".")[2].strip("*") in row.words for row in rows(_TABLE, "kept_out", _KeptOut))


def nearest_formats(number_format: str) -> tuple[str, ...]:
    """Return the formats that are nearest in size to one that cannot be served, best first; empty for one unknown."""
    known = (row for row in rows(_TABLE, "nearest", _Nearest) if row.format == number_format)
    return next((row.instead for row in known), ())


def gpu_named(word: str) -> str | None:
    """Return the GPU of hardware profiles that a builder's word or a node's label names; None for one unknown."""
    labels = (row.name for row in rows("deployment", "products", _Label) if row.label == word)
    words = (row.name for row in rows(_TABLE, "gpus", _Gpu) if word in row.words)
    return next(labels, None) or next(words, None)


def plain_value(value: object) -> str:
    """Return a value as the table spells it: lower case, enable and disable as true and false, nothing as empty."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "" if value is None else str(value).strip().lower()
    return _SPELLINGS.get(text, text)


@cache
def _of_reader(reader: str) -> tuple[Meaning, ...]:
    return tuple(row for row in meanings() if reader in row.reader)
