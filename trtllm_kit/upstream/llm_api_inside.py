"""The keys inside the LLM API's larger sections, and those of its TensorRT backend: a file read when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from trtllm_kit.upstream.facts import Fact, in_range, read_table, rows

_TABLE = "llm_api_inside"
_EARLY = "llm_api_early"
FIRST: str = next(row["since"] for row in read_table("releases")["toolchains"] if row["name"] == "llm-api")
"""First release that serves by the LLM API alone; of those before it the keys stand in a table of their own."""
TAGS = {
    "speculative_config": "decoding_type",
    "sparse_attention_config": "algorithm",
    "kv_cache_compression_config": "algorithm",
}
"""Sections of several kinds, and the key whose value must name the kind."""


class InsideKey(Fact):
    """One key in one range of releases, of one kind of its section where the section has kinds."""

    key: str
    """Dotted, e.g. ``lora_config.max_lora_rank``."""
    kind: str | None = None
    """The value of the section's tag with which the key is taken, e.g. ``MTP``; None: it has no kinds."""
    backend: Literal["pytorch", "tensorrt"] = "pytorch"
    type: str
    default: Any = None
    """Absent where the key is required, or its default was not read."""
    required: bool = False
    allowed: tuple[bool | int | str, ...] = ()
    status: Literal["stable", "beta", "prototype", "deprecated"] = "stable"


def inside_key(version: str, key: str, kind: str | None = None) -> InsideKey | None:
    """Return what that release's PyTorch backend says of a dotted key; None when it does not take it with that kind."""
    found = (row for row in _keys(is_early(version)).get(key, ()) if row.holds(version) and row.backend == "pytorch")
    return next((row.seen_from(version) for row in found if row.kind in (None, kind)), None)


def kinds_of(version: str, section: str) -> tuple[str, ...]:
    """Return the kinds that a release has of a section like ``speculative_config``, in the table's order."""
    inside = (row for row in _of_section(section, version) if row.holds(version))
    return tuple(dict.fromkeys(row.kind for row in inside if row.kind is not None))


def unknown_inside(version: str, section: str, content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys inside a section that the release does not take, in document order.

    Empty for a section whose inside the release leaves free, or of which nothing is known.
    """
    tag = TAGS.get(section)
    kind = _kind_of(version, section, content.get(tag)) if tag else None
    if tag and kind is None:
        return (f"{section}.{tag}",)
    return tuple(_unknown(version, section, content, kind))


def inside_keys(*, early: bool = False) -> tuple[InsideKey, ...]:
    """Return every row of the table, or of that of the releases before ``FIRST``."""
    return rows(_EARLY, "kinds", InsideKey) if early else rows(_TABLE, "keys", InsideKey)


def is_early(version: str) -> bool:
    """Whether a release is one of those before ``FIRST``."""
    return in_range(version, None, FIRST)


def _unknown(version: str, section: str, content: Mapping[str, Any], kind: str | None) -> Iterator[str]:
    if not any(row.holds(version) for row in _of_section(section, version)):
        return
    for name, value in content.items():
        key = f"{section}.{name}"
        if name != TAGS.get(section) and inside_key(version, key, kind) is None:
            yield key
        elif isinstance(value, Mapping):
            yield from _unknown(version, key, value, kind)


def _kind_of(version: str, section: str, value: object) -> str | None:
    """Return the kind that a tag's value names; releases read the tag of sparse attention in any letter case."""
    known = kinds_of(version, section)
    if section == "speculative_config":
        return str(value) if value in known else None
    return next((kind for kind in known if kind.lower() == str(value).lower()), None)


def _of_section(section: str, version: str) -> tuple[InsideKey, ...]:
    return _sections(is_early(version)).get(section, ())


@cache
def _sections(early: bool) -> dict[str, tuple[InsideKey, ...]]:
    found: dict[str, list[InsideKey]] = {}
    for row in inside_keys(early=early):
        if row.backend == "pytorch":
            found.setdefault(row.key.rpartition(".")[0], []).append(row)
    return {section: tuple(inside) for section, inside in found.items()}


@cache
def _keys(early: bool) -> dict[str, tuple[InsideKey, ...]]:
    found: dict[str, list[InsideKey]] = {}
    for row in inside_keys(early=early):
        found.setdefault(row.key, []).append(row)
    return {key: tuple(inside) for key, inside in found.items()}
