"""Keys of an LLM-API document across releases: which release takes which, and where one went (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from trtllm_kit.light import dataclass
from trtllm_kit.upstream.facts import Certainty, version_key
from trtllm_kit.upstream.llm_api import LlmApiKey, llm_api_key, llm_api_keys, releases_read, unknown_llm_api_keys
from trtllm_kit.upstream.llm_api_inside import TAGS, InsideKey, inside_key, inside_keys, is_early
from trtllm_kit.upstream.releases import known_releases
from trtllm_kit.upstream.renames import Rename, renames, taken_before

Tags = Mapping[str, Any]
"""Dotted key of a tag -> its value: what says of which kind a section is."""
_MODE = {"cuda_graph_config": "mode"}
_ORDER: tuple[Certainty, ...] = ("read", "near", "recalled")


@dataclass(frozen=True)
class Leaf:
    """One setting of a document."""

    key: str
    """Dotted."""
    value: Any
    there: bool = False
    """It is a section that matters by being there, whatever stands inside; ``value`` is then an empty mapping."""


@dataclass(frozen=True)
class Way:
    """Where a setting goes."""

    key: str
    value: Any
    exact: bool
    certainty: Certainty
    why: str


def leaves(document: Mapping[str, Any], prefix: str = "") -> Iterator[Leaf]:
    """Yield the settings of a document in its order, sections taken apart where any release knows what is in them."""
    for name, value in document.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and key in sections():
            if key in switches():
                yield Leaf(key, {}, there=True)
            yield from leaves(value, f"{key}.")
        else:
            yield Leaf(key, value)


def tags_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tags of a document's sections that have kinds."""
    found = {}
    for section, tag in (TAGS | _MODE).items():
        content = document.get(section)
        if isinstance(content, Mapping) and tag in content:
            found[f"{section}.{tag}"] = content[tag]
    return found


@cache
def sections() -> frozenset[str]:
    """Return the dotted keys of all sections that hold keys in some release."""
    rows = (row.key for row in _all_rows())
    return frozenset(".".join(key.split(".")[:count]) for key in rows for count in range(1, key.count(".") + 1))


@cache
def switches() -> frozenset[str]:
    """Return the sections that are a switch by being there, which other releases have as true or false."""
    return frozenset(row.new for row in renames() if row.change == "switch")


def takes(version: str, leaf: Leaf, tags: Tags) -> bool:
    """Whether a release is known to take a setting; where a section of it was not read, whether the next one does."""
    return not unknown_llm_api_keys(_read_inside(version, leaf.key.partition(".")[0]), _alone(leaf, tags))


def may_take(version: str, leaf: Leaf, tags: Tags) -> bool:
    """Whether a release takes a setting, or its own keys were not read and one was renamed only later."""
    unknown = unknown_llm_api_keys(_read_inside(version, leaf.key.partition(".")[0]), _alone(leaf, tags))
    return all(
        not _was_read(version, key) and taken_before(key, version) and _was_there(version, key) for key in unknown
    )


@cache
def _read_inside(version: str, section: str) -> str:
    """Return the release itself, or the first later one of which anything inside a section was read."""
    rows = [row for row in _early_rows() if row.key.startswith(f"{section}.")]
    if not is_early(version) or llm_api_key(version, section) is None or any(row.holds(version) for row in rows):
        return version
    later = (name for name in known_releases() if version_key(name) > version_key(version) and is_early(name))
    return next((name for name in later if any(row.holds(name) for row in rows)), version)


@cache
def _was_there(version: str, key: str) -> bool:
    """Whether an earlier release takes a dotted key."""
    ends = (row.until for row in _all_rows() if row.key == key)
    return any(end is not None and version_key(end) <= version_key(version) for end in ends)


def _all_rows() -> tuple[LlmApiKey | InsideKey, ...]:
    return (*_early_rows(), *llm_api_keys(), *inside_keys())


@cache
def _early_rows() -> tuple[LlmApiKey | InsideKey, ...]:
    return (*llm_api_keys(early=True), *inside_keys(early=True))


def row_of(version: str, key: str, tags: Tags) -> LlmApiKey | InsideKey | None:
    """Return what a release says of a dotted key, of the kind that its section has."""
    section = key.partition(".")[0]
    tag = (TAGS | _MODE).get(section)
    kind = tags.get(f"{section}.{tag}") if tag else None
    return llm_api_key(version, key) or inside_key(version, key, None if kind is None else str(kind))


def way(leaf: Leaf, tags: Tags, target: str) -> Way | None:
    """Return the nearest other place for a setting over the renames of all releases; None where there is none.

    ``tags`` are those of the target. A place that it is known to take goes before one that it may take.
    """
    return _way(leaf, tags, target, takes) or _way(leaf, tags, target, may_take)


def _way(leaf: Leaf, tags: Tags, target: str, taken: Callable[[str, Leaf, Tags], bool]) -> Way | None:
    start = Way(leaf.key, leaf.value, exact=True, certainty="read", why="")
    seen, waiting = {leaf.key}, deque([start])
    while waiting:
        at = waiting.popleft()
        for new in _onward(at):
            if new.key in seen:
                continue
            seen.add(new.key)
            if taken(target, Leaf(new.key, new.value), tags):
                return new
            waiting.append(new)
    return None


def older_name(leaf: Leaf, tags: Tags, source: str, target: str) -> Way | None:
    """Return the name that a setting had before a rename, where the target takes both and goes by the older one."""
    section = leaf.key.rpartition(".")[0]
    for row in _edges().get(leaf.key, ()):
        renamed_since = row.new == leaf.key and row.holds(source) and not row.holds(target) and row.since is not None
        if not renamed_since or row.change != "same" or row.old.rpartition(".")[0] != section:
            continue
        if version_key(target) < version_key(str(row.since)) and takes(target, Leaf(row.old, leaf.value), tags):
            why = f"{row.old} is its name before {row.since}"
            return Way(row.old, leaf.value, exact=True, certainty=row.certainty, why=why)
    return None


def gone(key: str, version: str) -> Rename | None:
    """Return the row that says that a key, or the section around it, has nothing in its place in a release."""
    named = (key, key.rpartition(".")[0], key.partition(".")[0])
    found = (row for name in named for row in renames() if row.old == name and row.holds(version))
    return next((row.seen_from(version) for row in found if not row.new or row.change == "none"), None)


def less_certain(*certainties: Certainty) -> Certainty:
    """Return the least certain of several."""
    return max(certainties, key=_ORDER.index)


def _onward(at: Way) -> Iterator[Way]:
    for row in _edges().get(at.key, ()):
        forward = row.old == at.key
        new = row.new if forward else row.old
        changed = _changed(row, at.value, forward=forward)
        if changed is None:
            continue
        value, exact = changed
        why = f"{row.old} {row.message}" if forward else f"{row.old} is its name before {row.since}"
        yield Way(new, value, at.exact and exact, less_certain(at.certainty, row.certainty), why)


@cache
def _edges() -> dict[str, tuple[Rename, ...]]:
    found: dict[str, list[Rename]] = {}
    for row in renames():
        if row.table == "llm-api" and row.new:
            found.setdefault(row.old, []).append(row)
            found.setdefault(row.new, []).append(row)
    return {key: tuple(rows) for key, rows in found.items()}


def _changed(row: Rename, value: Any, *, forward: bool) -> tuple[Any, bool] | None:
    """Return the value on the other side of a rename, and whether it means the same; None where no rule makes it."""
    if row.change == "same":
        return value, True
    if row.change == "opposite":
        return (not value, True) if isinstance(value, bool) else None
    if row.change == "switch":
        return _switched(value, forward=forward)
    if row.change == "words":
        pairs = row.words if forward else tuple((new, old) for old, new in row.words)
        found = next((new for old, new in pairs if old == value and type(old) is type(value)), None)
        return None if found is None else (found, True)
    return None


def _switched(value: Any, *, forward: bool) -> tuple[Any, bool] | None:
    if forward:
        return ({} if value else None, True) if isinstance(value, bool) else None
    return value is not None, True


def _alone(leaf: Leaf, tags: Tags) -> dict[str, Any]:
    """Return a document of one setting and the tags of its section."""
    document: dict[str, Any] = {}
    section = leaf.key.partition(".")[0]
    for key, value in tags.items():
        if key.startswith(f"{section}.") and "." in leaf.key:
            put(document, key, value)
    put(document, leaf.key, leaf.value)
    return document


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, the sections around it made where they are not there."""
    *path, last = key.split(".")
    for name in path:
        inner = document.get(name)
        if not isinstance(inner, dict):
            inner = document[name] = {}
        document = inner
    document[last] = value


def get(document: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    """Return whether a dotted key is there, and its value."""
    value: Any = document
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return False, None
        value = value[name]
    return True, value


def is_set(document: Mapping[str, Any], needs: str) -> bool:
    """Whether a document sets a key, or gives it a value (``key=value``); true where nothing is needed."""
    if not needs:
        return True
    key, equals, value = needs.partition("=")
    there, held = get(document, key)
    return there and (held == value if equals else held is not None and held is not False)


def _was_read(version: str, key: str) -> bool:
    return version in releases_read() or ("." not in key and version in releases_read(early=True))
