"""Targets beyond the one that a command line names: a file of them, and what options add to each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtllm_kit.errors import ProfileError, storage_error
from trtllm_kit.files import read_text
from trtllm_kit.health.access import Access
from trtllm_kit.health.snapshot import Target

_TEXTS = ("name", "url", "canary", "via")
_LISTS = ("beside", "log_files")
_SPANS = ("start_grace_seconds", "canary_timeout_seconds", "canary_interval_seconds")
_KEYS = frozenset((*_TEXTS, *_LISTS, *_SPANS, "nvml", "ranks"))


def read_targets(path: Path) -> list[Target]:
    """Read a JSON file: ``{"targets": [{"name": ..., "url": ...}, ...]}``.

    Raises ``StorageError``, and ``ProfileError`` with every wrong key.
    """
    try:
        document = json.loads(read_text(path))
    except OSError as error:
        raise storage_error(error, "reading the targets") from None
    except (ValueError, RecursionError) as error:
        raise _wrong(path, [f"{path}: not JSON: {error}"]) from None
    entries = document.get("targets") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise _wrong(path, [f"{path}: targets: found no list of targets"])
    problems: list[str] = []
    targets = [_read(entry, f"{path}: targets[{number}]", problems) for number, entry in enumerate(entries)]
    if problems:
        raise _wrong(path, problems)
    return targets


def _wrong(path: Path, problems: list[str]) -> ProfileError:
    return ProfileError(
        f"the targets in {path} cannot be used",
        why=f"{len(problems)} problem{'s' if len(problems) > 1 else ''}",
        hint='{"targets": [{"name": "a", "url": "http://127.0.0.1:8002/metrics"}]}',
        problems=tuple(problems),
    )


def _read(entry: Any, where: str, problems: list[str]) -> Target:
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
        problems.append(f"{where}: found no mapping with a url")
        return Target("")
    problems.extend(f"{where}.{key}: unknown key" for key in sorted(entry.keys() - _KEYS))
    wrong = [key for key in _TEXTS if not isinstance(entry.get(key, ""), str)]
    wrong += [key for key in _LISTS if not _is_list(entry.get(key, []), str)]
    wrong += [] if _is_list(entry.get("ranks", []), int) and min(entry.get("ranks") or [1]) > 0 else ["ranks"]
    wrong += [] if isinstance(entry.get("nvml", False), bool) else ["nvml"]
    wrong += [key for key in _SPANS if not _is_span(entry.get(key, 0))]
    problems.extend(f"{where}.{key}: {entry[key]!r} is of the wrong kind" for key in wrong)
    known: dict[str, Any] = {key: _frozen(entry[key]) for key in entry if key in _KEYS}
    return Target(**known)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_span(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) and not isinstance(one, bool) for one in value)


def _or(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else given


def with_options(target: Target, asked: Mapping[str, Any]) -> Target:
    """Return a target with the sources that the command line adds to every one."""
    logs = (*target.log_files, *asked["log"])
    canary = "" if asked["passive"] else asked["canary"] or target.canary
    return replace(
        target,
        beside=(*target.beside, *asked["beside"]),
        nvml=target.nvml or asked["nvml"],
        log_files=logs,
        canary=canary,
        canary_timeout_seconds=_or(asked["canary_timeout"], target.canary_timeout_seconds),
        canary_interval_seconds=_or(asked["canary_interval"], target.canary_interval_seconds),
        via=target.via or asked["via"] or "",
        access=Access(asked["ca"] or "", asked["bearer"] or "", asked["basic"] or "", environment=True),
    )
