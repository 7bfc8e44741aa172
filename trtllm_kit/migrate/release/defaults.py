"""What a document leaves to a release, said out loud where the next release would do something else (pure)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from trtllm_kit.migrate.release.change import UNSAID, How, Row
from trtllm_kit.migrate.release.keys import Leaf, get, is_set, less_certain, put, row_of, tags_of, takes, way
from trtllm_kit.upstream.defaults import Default, choices, default_of


def made_explicit(given: Mapping[str, Any], made: dict[str, Any], source: str, target: str) -> list[Row]:
    """Write into ``made`` what ``given`` leaves to ``source`` and ``target`` does otherwise; return a row for each."""
    rows = []
    for name in choices():
        was, now = default_of(name, source), default_of(name, target)
        if was is None:
            row = _unknown(now, made, source, target)
        elif _is_said(given, was, source) or not is_set(given, was.needs):
            continue
        else:
            row = _unread(was, made, target) if now is None else _changed(was, now, made, (source, target))
        if row is not None:
            rows.append(row)
    return rows


def _changed(was: Default, now: Default, made: dict[str, Any], between: tuple[str, str]) -> Row | None:
    """Return the row of a choice that both releases make, and not in the same way."""
    source, target = between
    if was.does == now.does and isinstance(was.does, bool) == isinstance(now.does, bool):
        return None
    if _is_said(made, now, target):
        return None
    does = f"{was.name}: {source} does {_shown(was.does)} by itself, {target} {_shown(now.does)}"
    certainty = less_certain(was.certainty, now.certainty)
    can, value = now.says(was.does)
    if can and takes(target, Leaf(now.key, value), tags_of(made)):
        put(made, now.key, copy.deepcopy(value))
        return Row(now.key, UNSAID, now.key, value, How.EXACT, does, certainty)
    note = was.note or now.note or f"{target} has no word for it"
    return Row(now.key, UNSAID, "", UNSAID, How.APPROXIMATE, f"{does}; {note}", certainty)


def _unread(was: Default, made: dict[str, Any], target: str) -> Row | None:
    """Write a choice of which it was not read what the target does by itself, where the target has a key for it."""
    can, value = was.says(was.does)
    if not can:
        return None
    tags = tags_of(made)
    leaf = Leaf(was.key, value)
    found = None if takes(target, leaf, tags) else way(leaf, tags, target)
    key, value = (found.key, found.value) if found else (was.key, value)
    if not takes(target, Leaf(key, value), tags) or get(made, key)[0] or _inside_null(made, key):
        return None
    put(made, key, copy.deepcopy(value))
    why = f"{was.name}: what {target} does by itself was not read"
    return Row(key, UNSAID, key, value, How.EXACT, why, "near")


def _unknown(now: Default | None, made: dict[str, Any], source: str, target: str) -> Row | None:
    """Tell of a choice that the target makes by itself, where it was not read what the source does."""
    if now is None or not is_set(made, now.needs) or _is_said(made, now, target):
        return None
    why = f"{now.name}: {target} does {_shown(now.does)} by itself; what {source} does was not read"
    return Row(now.key, UNSAID, "", UNSAID, How.APPROXIMATE, why, "near")


def _is_said(document: Mapping[str, Any], choice: Default, version: str) -> bool:
    """Whether a document decides a choice; null does so where it is not what holds without the key."""
    there, held = get(document, choice.key)
    if there and held is None:
        known = row_of(version, choice.key, tags_of(document))
        return any(value is None for _, value in choice.spelt) or (known is not None and known.default is not None)
    return there or _inside_null(document, choice.key)


def _inside_null(document: Mapping[str, Any], key: str) -> bool:
    """Whether a section around a key is null, so that writing inside it would switch it on."""
    section, dot, _ = key.rpartition(".")
    there, held = get(document, section) if dot else (False, None)
    return there and held is None


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
