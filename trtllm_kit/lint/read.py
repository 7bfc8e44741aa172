"""Reads files and folders of others for a lint; what the system refuses ends it, since half a look is no verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trtllm_kit.errors import CannotDo, NotLinted, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.strict_json import parse_json

MOST_BYTES = 1 << 20
"""Ten times the largest ``config.pbtxt`` or YAML document of upstream's."""
_MOST_JSON_BYTES = 16 << 20
"""Lists of every module's format make an engine's ``config.json`` larger."""
_MOST_VALUES = 200_000


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return a whole file; raises ``NotLinted`` for what is no file of a readable size, and ``StorageError``."""
    try:
        return read_file(path, most)
    except UnfitFile as error:
        raise not_read(path, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading the file") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raises ``NotLinted`` and ``StorageError``."""
    try:
        document = parse_json(read_bytes(path, _MOST_JSON_BYTES), _MOST_VALUES)
    except ValueError as error:
        raise not_read(path, f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise not_read(path, f"it holds a {type(document).__name__}, not an object")
    return document


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; raises ``StorageError``."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise storage_error(error, "looking into what is to be linted") from None


def sizes_in(folder: Path, ending: str) -> dict[str, int]:
    """Return the bytes of the files of a folder whose names end so; a link that leads nowhere is not there."""
    found = {}
    for name in names_in(folder):
        if name.endswith(ending) and (folder / name).is_file():
            found[name] = (folder / name).stat().st_size
    return found


def not_read(path: Path, why: str) -> CannotDo:
    """Say that a file cannot be read as what it should be."""
    return NotLinted(f"{path} cannot be read", why=why, hint="give a whole file, or leave it out")
