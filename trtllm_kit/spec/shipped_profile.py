"""Profiles that come with the kit, from the JSON that ``make docs`` makes of them; every other one from its YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.shipped_yaml import derived_document
from trtllm_kit.spec.document import Document, Place


def read_profile(path: Path, label: str, shipped: Mapping[str, Path]) -> Document:
    """Read one profile; ``label`` names it in messages, ``shipped`` holds those that come with the kit.

    Raises ``StorageError``.
    """
    found = derived_document(path) if path in shipped.values() else None
    if found is not None:
        places = {tuple(where): Place(label, line) for where, line in found["places"]}
        return Document(label, _held(found["data"]), places, {tuple(where): text for where, text in found["spelled"]})
    from trtllm_kit.spec.yaml_tree import read_document

    return read_document(path, label)


def parse_profile(path: Path) -> dict[str, Any]:
    """Return what is kept of a profile as JSON; raises ``ValueError`` for one with problems, which no kit ships."""
    from trtllm_kit.spec.yaml_tree import read_document

    document = read_document(path, path.name)
    if document.problems:
        raise ValueError(str(document.problems[0]))
    places = [[list(where), place.line] for where, place in document.places.items()]
    spelled = [[list(where), text] for where, text in document.spelled.items()]
    return {"data": document.data, "places": places, "spelled": spelled}


def _held(value: Any) -> Any:
    """Return JSON's data as YAML is read: lists are tuples."""
    if isinstance(value, list):
        return tuple(map(_held, value))
    return {key: _held(item) for key, item in value.items()} if isinstance(value, dict) else value
