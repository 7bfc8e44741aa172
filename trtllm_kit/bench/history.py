"""Runs in a folder: one file each, whose name says when and what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtllm_kit.bench.imported import imported
from trtllm_kit.bench.strict import require_result
from trtllm_kit.errors import ResultUnfit, UsageError, storage_error
from trtllm_kit.files import UnfitFile, read_file, replace_text
from trtllm_kit.strict_json import parse_json

ENDING = ".bench.json"
MOST_BYTES = 1 << 28


def write_result(path: Path, document: dict[str, Any]) -> None:
    """Write a run, whole or not at all; raises ``StorageError``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(document) + "\n")
    except OSError as error:
        raise storage_error(error, "writing the result") from None


def read_result(path: Path) -> dict[str, Any]:
    """Return a run that was written; raises ``UsageError`` where none is, ``ResultUnfit`` or ``StorageError``."""
    try:
        return require_result(parse_json(read_file(path, MOST_BYTES)))
    except (FileNotFoundError, IsADirectoryError):
        raise _nothing_at(path) from None
    except OSError as error:
        raise storage_error(error, "reading a result") from None
    except (UnfitFile, ValueError) as error:
        raise ResultUnfit(
            f"{path} is no result", why=str(error), hint="name a file that trtkit bench --out or --history wrote"
        ) from None


def read_foreign(path: Path) -> list[dict[str, Any]]:
    """Return the runs in a result of AIPerf or GuideLLM; raises what ``read_result`` raises."""
    try:
        return [require_result(run) for run in imported(json.loads(read_file(path, MOST_BYTES)))]
    except (FileNotFoundError, IsADirectoryError):
        raise _nothing_at(path) from None
    except OSError as error:
        raise storage_error(error, "reading a result") from None
    except (UnfitFile, ValueError, TypeError, AttributeError) as error:
        raise ResultUnfit(
            f"{path} cannot be imported", why=str(error), hint="name profile_export_aiperf.json or GuideLLM's JSON"
        ) from None


def _nothing_at(path: Path) -> UsageError:
    return UsageError(f"{path} is no file", why="a run is a file", hint="trtkit bench list FOLDER shows a history's")


def place_in(folder: Path, name: str, stamp: str) -> Path:
    """Return a path in a history that nothing has yet, e.g. ``20261130T114500-coding.bench.json``."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)[:60] or "run"
    path, count = folder / f"{stamp}-{safe}{ENDING}", 1
    while path.exists():
        count += 1
        path = folder / f"{stamp}-{safe}-{count}{ENDING}"
    return path


def results_in(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Yield the files of a history in the order of their names, with None for one that cannot be read."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder",
            why="a history is a folder of results",
            hint="name what --history was given",
        )
    for path in sorted(folder.glob(f"*{ENDING}")):
        try:
            yield path, read_result(path)
        except ResultUnfit:
            yield path, None
