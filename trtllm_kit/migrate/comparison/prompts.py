"""The prompts that two deployments are asked: those of a file, or as many as are wanted. Pure."""

from __future__ import annotations

from pathlib import Path

from trtllm_kit.bench.load import Load, closed
from trtllm_kit.bench.prompts import Prompts
from trtllm_kit.errors import UsageError, storage_error
from trtllm_kit.estimate.workload import Workload, fixed, within
from trtllm_kit.files import UnfitFile, read_text
from trtllm_kit.strict_json import parse_json

MOST_PROMPTS = 100_000
_FIELDS = ("prompt", "text_input", "text")
_SHORTEST = 0.25
"""Of the longest prompt that is made."""


def prompts_of(given: str, longest: int, seed: int) -> tuple[str, ...]:
    """Return the prompts of a file, or as many as a number says: texts of ``longest`` words, and of less.

    A file holds a prompt a line, or JSON objects with ``prompt``, ``text_input`` or ``text`` where its name ends in
    ``.jsonl``. Raises ``UsageError`` and ``StorageError``.
    """
    if not given.isdecimal():
        return _of_file(Path(given))
    count = int(given)
    if not 1 <= count <= MOST_PROMPTS:
        raise UsageError(
            f"--prompts {given}", why=f"it is 1 to {MOST_PROMPTS:,} prompts, or a file", hint="--prompts 50"
        )
    load = Load(Workload(within(_SHORTEST, longest), fixed(1), closed(1), count, seed))
    made = Prompts(load)  # by words: those that are one token of a vocabulary may be too few to differ
    return tuple(made.text(number).strip() for number in range(count))


def _of_file(path: Path) -> tuple[str, ...]:
    try:
        text = read_text(path)
    except UnfitFile as error:
        raise _wrong(path, 0, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading the prompts") from None
    except UnicodeDecodeError as error:
        raise _wrong(path, 0, f"it is not UTF-8 text: {error}") from None
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not numbered:
        raise _wrong(path, 1, "it holds no prompt")
    if len(numbered) > MOST_PROMPTS:
        raise _wrong(path, MOST_PROMPTS, f"{len(numbered):,} prompts, and at most {MOST_PROMPTS:,} are asked")
    if path.suffix in (".jsonl", ".ndjson"):
        return tuple(_of_line(path, number, line) for number, line in numbered)
    return tuple(line.rstrip("\r") for _, line in numbered)


def _of_line(path: Path, number: int, line: str) -> str:
    try:
        row = parse_json(line.encode())
    except ValueError as error:
        raise _wrong(path, number, str(error)) from None
    held = row if isinstance(row, dict) else {}
    text = next((held[name] for name in _FIELDS if name in held), None)
    if not isinstance(text, str) or not text.strip():
        raise _wrong(path, number, f"none of {', '.join(_FIELDS)} holds a text")
    return text


def _wrong(path: Path, number: int, why: str) -> UsageError:
    place = f"{path}:{number}" if number else str(path)
    return UsageError(f"{place}: no prompts", why=why, hint="a prompt a line, or --prompts 50")
