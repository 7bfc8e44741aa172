"""Rules about the values of an LLM-API document: words that a key does not take, keys that must be there (PF24)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.finding import found
from trtllm_kit.upstream.facts import Certainty
from trtllm_kit.upstream.llm_api import LlmApiKey, llm_api_key
from trtllm_kit.upstream.llm_api_inside import TAGS, InsideKey, inside_key, kinds_of

_DOUBT = "; not confirmed for this release"
_LEVELS = 8


def values(given: Mapping[str, Any], release: str) -> Iterator[Finding]:
    """PF24: yield values that the release does not take; keys that it does not know are another rule's."""
    yield from _inside(given, "", None, release)


def _inside(section: Mapping[str, Any], prefix: str, kind: str | None, release: str) -> Iterator[Finding]:
    if prefix.count(".") > _LEVELS:
        return
    for name, value in section.items():
        key = f"{prefix}{name}"
        known = llm_api_key(release, key) or inside_key(release, key, kind)
        if known is not None:
            yield from _value(key, value, known, release)
        if isinstance(value, Mapping):
            yield from _inside(value, f"{key}.", _kind(key, value, release) or kind, release)


def _value(key: str, value: object, known: LlmApiKey | InsideKey, release: str) -> Iterator[Finding]:
    allowed = known.allowed
    if value is None or isinstance(value, Mapping | list) or not _limited(value, known) or _is_one_of(value, allowed):
        return
    words = list(map(str, allowed))
    near = difflib.get_close_matches(str(value), words, n=1, cutoff=0.6) or words[:1]
    severity, doubt = _sureness(known.certainty)
    yield found(
        "PF24",
        severity,
        f"Release {release} does not take this value of {key}.",
        f"{key} is {value}; it takes {', '.join(words)}{doubt}",
        f"{key}: {near[0]}",
    )


def _limited(value: object, known: LlmApiKey | InsideKey) -> bool:
    """Whether the values listed are all there are: not where any text will do, nor words for numbered ones."""
    free = "str" in known.type.replace("|", " ").split()
    numbered = isinstance(value, str) and all(isinstance(one, int) for one in known.allowed)
    return bool(known.allowed) and not free and not numbered


def _is_one_of(value: object, allowed: Sequence[bool | int | str]) -> bool:
    """Whether a value is a word of the list; upstream's enumerations take their own spelling in any letter case."""
    if isinstance(value, str):
        return value.lower() in {str(one).lower() for one in allowed}
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)


def _kind(key: str, section: Mapping[str, Any], release: str) -> str | None:
    """Return the kind of a section that has kinds."""
    tag = TAGS.get(key)
    word = str(section.get(tag)).lower() if tag else ""
    return next((kind for kind in kinds_of(release, key) if kind.lower() == word), None) if tag else None


def _sureness(certainty: Certainty) -> tuple[Severity, str]:
    return (Severity.ERROR, "") if certainty == "read" else (Severity.WARNING, _DOUBT)
