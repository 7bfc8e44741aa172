"""The keys of the LLM API's YAML: which release takes which, with what default and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trtllm_kit.upstream.facts import Fact, read_table, rows

_TABLE = "llm_api"


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


class _Limits(Fact):
    section: str


def llm_api_key(version: str, key: str) -> LlmApiKey | None:
    """Return what that release says of a dotted key, or None when it does not take the key."""
    found = next((entry for entry in _keys().get(key, ()) if entry.holds(version)), None)
    if found is None or _is_read(version):
        return found
    return found.model_copy(update={"certainty": "near"})


def unknown_llm_api_keys(version: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys of an LLM-API document that the release does not take, in document order."""
    return tuple(_unknown(version, document, ""))


def releases_with_key(key: str) -> tuple[str, ...]:
    """Return the releases read exactly that take a dotted key, oldest first."""
    return tuple(version for version in _read_releases() if llm_api_key(version, key) is not None)


def limits_section(version: str) -> str:
    """Return the section in which that release's limits take effect; empty for the top level."""
    return next(row.section for row in rows(_TABLE, "limits", _Limits) if row.holds(version))


def llm_api_keys() -> tuple[LlmApiKey, ...]:
    """Return every row of the table."""
    return tuple(entry for entries in _keys().values() for entry in entries)


def _unknown(version: str, document: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in document.items():
        key = f"{prefix}{name}"
        entry = llm_api_key(version, key)
        if entry is None:
            yield key
        elif isinstance(value, Mapping) and not entry.open:
            yield from _unknown(version, value, f"{key}.")


@cache
def _keys() -> dict[str, list[LlmApiKey]]:
    keys: dict[str, list[LlmApiKey]] = {}
    for entry in rows(_TABLE, "keys", LlmApiKey):
        keys.setdefault(entry.key, []).append(entry)
    return keys


def _is_read(version: str) -> bool:
    return version in _read_releases()


def _read_releases() -> tuple[str, ...]:
    return tuple(read_table(_TABLE)["read_releases"])
