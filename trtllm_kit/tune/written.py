"""The winner as a deploy profile: what differs from the profile it came from, on top of it as a base."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.spec.inherit import is_file_name
from trtllm_kit.spec.profile import DeployProfile

_LONGEST_NAME = 63
_NOT_OF_NAMES = re.compile(r"[^a-z0-9._-]+")


def profile_text(
    base: str, profile: DeployProfile, changes: Mapping[str, Any], target: Path, comments: Iterable[str]
) -> str:
    """Return a YAML document that ``plan`` reads as the profile with those dotted keys changed.

    ``base`` is what the operator calls the profile: a shipped name, or a path, which is written relative to
    ``target``. Keys that the profile has already are left out.
    """
    import yaml

    different = different_keys(profile, changes)
    document: dict[str, Any] = {"base": based_on(base, target), "name": name_of(target, profile.name)}
    for key, value in changes.items():
        if key in different:
            _put(document, key.split("."), plain(value))
    head = "".join(f"# {line}\n" if line else "#\n" for line in comments)
    return head + "\n" + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def different_keys(profile: DeployProfile, changes: Mapping[str, Any]) -> set[str]:
    """Return the dotted keys of changes whose value is another than the profile's."""
    own = profile.model_dump(mode="json")
    return {key for key, value in changes.items() if _at(own, key) != plain(value)}


def based_on(base: str, target: Path) -> str:
    """Return how the new document names the one it starts from."""
    if not is_file_name(base):
        return base
    relative = os.path.relpath(Path(base).expanduser().resolve(), target.expanduser().resolve().parent)
    return relative if "/" in relative or relative.endswith((".yaml", ".yml")) else f"./{relative}"


def name_of(target: Path, other: str) -> str:
    """Return a profile name for a file: its own, in the letters that names may have, else one made of ``other``'s."""
    stem = _NOT_OF_NAMES.sub("-", target.stem.lower()).strip("-._")[:_LONGEST_NAME]
    return stem or f"{other[: _LONGEST_NAME - 6]}-tuned"


def plain(value: Any) -> Any:
    """Return a value as YAML and JSON have it: tuples as lists."""
    return list(value) if isinstance(value, tuple) else value


def _at(document: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; None where a section is absent."""
    found: Any = document
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _put(document: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        document = document.setdefault(part, {})
    document[path[-1]] = value
