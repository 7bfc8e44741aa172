"""The keys of the LLM API's YAML: which release takes which, with what default and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trtllm_kit.upstream.facts import Fact, read_table, rows
from trtllm_kit.upstream.llm_api_inside import inside_key, is_early, unknown_inside

_TABLE = "llm_api"
_EARLY = "llm_api_early"


class LlmApiKey(Fact):
    """One key in one range of releases."""

    key: str
    """Dotted, e.g. ``kv_cache_config.tokens_per_block``."""
    type: str
    default: bool | int | float | str | None = None
    allowed: tuple[str | int, ...] = ()
    """Values it is limited to; empty when any of its type will do."""
    open: bool = False
    """A mapping whose inside the table does not list."""
    deprecated: bool = False
    power_of_two: bool = False
    """The release refuses any value but a power of two above one."""


class _Limits(Fact):
    section: str


class _KvDtype(Fact):
    format: str
    value: str


class _Unknown(Fact):
    part: str
    refused: bool


class _WithoutKey(Fact):
    key: str
    value: bool | int | float | str


def llm_api_key(version: str, key: str) -> LlmApiKey | None:
    """Return what that release says of a dotted key, or None when it does not take the key."""
    held = (entry for entry in _rows_of(key, is_early(version)) if entry.holds(version))
    return next((entry.seen_from(version) for entry in held), None)


def value_without_key(version: str, key: str) -> bool | int | float | str | None:
    """Return what a release that lacks a dotted key always does in its place; None when that is not known."""
    known = (row for row in rows(_TABLE, "without_key", _WithoutKey) if row.key == key)
    return next((row.value for row in known if row.holds(version)), None)


def unknown_llm_api_keys(version: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys of an LLM-API document that the release does not take, in document order."""
    return tuple(_unknown(version, document, ""))


def kv_cache_dtype(version: str, number_format: str) -> str:
    """Return what that release's ``kv_cache_config.dtype`` says for a format; ``auto`` follows the checkpoint.

    Up to 1.2.1 the key takes any text and acts on ``fp8`` alone.
    """
    held = (row for row in rows(_TABLE, "kv_dtypes", _KvDtype) if row.holds(version))
    return next((row.value for row in held if row.format == number_format), "auto")


def releases_with_key(key: str) -> tuple[str, ...]:
    """Return the releases read exactly that take a dotted key, oldest first."""
    return tuple(version for version in releases_read() if llm_api_key(version, key) is not None)


def releases_read(*, early: bool = False) -> tuple[str, ...]:
    """Return the releases whose own keys were read, oldest first; of those before 1.0 the keys of the top level."""
    return tuple(read_table(_EARLY if early else _TABLE)["sources"]["args"]["read_in"])


def limits_section(version: str) -> str:
    """Return the section in which that release's limits take effect; empty for the top level."""
    return next(row.section for row in rows(_TABLE, "limits", _Limits) if row.holds(version))


def llm_api_keys(*, early: bool = False) -> tuple[LlmApiKey, ...]:
    """Return every row of the table, or of that of the releases before 1.0."""
    keys = dict.fromkeys(str(row["key"]) for row in read_table(_EARLY if early else _TABLE)["keys"])
    return tuple(entry for key in keys for entry in _rows_of(key, early))


def keys_taken(version: str) -> tuple[str, ...]:
    """Return the dotted keys that a release takes, in the table's order."""
    return tuple(row.key for row in llm_api_keys(early=is_early(version)) if row.holds(version))


def refuses_unknown(version: str, key: str) -> bool:
    """Whether a release refuses a document with a dotted key that it does not know; some read on without a word."""
    section, dot, _ = key.partition(".")
    known = {row.part: row.refused for row in rows(_TABLE, "unknown", _Unknown) if row.holds(version)}
    return known.get(section, known["inside" if dot else "top"])


def _unknown(version: str, document: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in document.items():
        key = f"{prefix}{name}"
        entry = llm_api_key(version, key)
        if entry is None and inside_key(version, key, str(document.get("mode"))) is None:
            yield key
        elif isinstance(value, Mapping) and (entry is None or entry.open):
            yield from unknown_inside(version, key, value)
        elif isinstance(value, Mapping) and _was_read_inside(version, key):
            yield from _unknown(version, value, f"{key}.")


def _was_read_inside(version: str, section: str) -> bool:
    """Whether anything inside a section is known in a release; early releases were read at the top alone."""
    if not is_early(version):
        return True
    return any(row.holds(version) for row in llm_api_keys(early=True) if row.key.startswith(f"{section}."))


@cache
def _rows_of(key: str, early: bool) -> tuple[LlmApiKey, ...]:
    if early:
        return rows(_EARLY, "keys", LlmApiKey, key=key)
    return rows(_TABLE, "keys", LlmApiKey, key=key)
