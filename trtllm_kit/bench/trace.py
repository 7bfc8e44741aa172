"""A load from a JSONL file of recorded requests.

A line is an object: ``timestamp`` in milliseconds from the start (all lines or none), and either ``prompt`` (a text)
or ``input_length`` (tokens); ``output_length`` (tokens); ``hash_ids``, equal numbers for equal blocks of
``BLOCK_TOKENS`` tokens at the same place, as published traces of serving have them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trtllm_kit.bench.load import Load, Sampling
from trtllm_kit.errors import UsageError, storage_error
from trtllm_kit.estimate.workload import ClosedLoop, Request, Segment, Trace, Workload, listed
from trtllm_kit.files import UnfitFile, read_text
from trtllm_kit.strict_json import parse_json

BLOCK_TOKENS = 512
_USUAL_ANSWER = 128


def trace_load(path: Path, *, users: int | None, requests: int | None, answer: int | None, seed: int = 0) -> Load:
    """Return the load of a file; with ``users`` in a closed loop, otherwise at the recorded times.

    Raises ``UsageError`` with the line for what is no request, and ``StorageError``.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise storage_error(error, "reading the trace") from None
    except UnfitFile as error:
        raise _wrong(path, 0, str(error)) from None
    rows = [_row(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    rows = rows[:requests] if requests else rows
    if not rows:
        raise _wrong(path, 1, "it holds no request")
    texts = tuple(row["prompt"] for row in rows if "prompt" in row)
    if texts and len(texts) != len(rows):
        raise _wrong(path, 1, f"{len(texts)} of {len(rows)} lines have a prompt: all have one, or none")
    prompts = tuple(int(row.get("input_length") or max(len(row.get("prompt", "").split()), 1)) for row in rows)
    answers = tuple(int(row.get("output_length") or answer or _USUAL_ANSWER) for row in rows)
    work = Workload(listed(prompts), listed(answers), _arrivals(path, rows, users), len(rows), seed)
    shared = tuple(_segments(row, prompt) for row, prompt in zip(rows, prompts, strict=True))

    def drawn(number: int) -> Request:
        return Request(prompts[number], answers[number], 0, shared[number])

    return Load(work, Sampling(), texts=texts, drawn=drawn)


def _arrivals(path: Path, rows: list[dict[str, Any]], users: int | None) -> ClosedLoop | Trace:
    if users is not None:
        return ClosedLoop(users)
    times = [row["timestamp"] / 1000 for row in rows if "timestamp" in row]
    if not times:
        return ClosedLoop(1)
    if len(times) != len(rows) or times != sorted(times):
        raise _wrong(path, 1, "every line needs a timestamp, in ascending order, or none has one")
    return Trace(tuple(time - times[0] for time in times))


def _segments(row: dict[str, Any], prompt: int) -> tuple[Segment, ...]:
    found, left = [], prompt
    for key in row.get("hash_ids", ()):
        tokens = min(BLOCK_TOKENS, left)
        if tokens <= 0:
            break
        found.append(Segment(int(key) + 1, tokens))
        left -= tokens
    return tuple(found)


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = parse_json(line.encode())
    except ValueError as error:
        raise _wrong(path, number, str(error)) from None
    if not isinstance(row, dict) or not (isinstance(row.get("prompt"), str) or _positive(row.get("input_length"))):
        raise _wrong(path, number, "it has neither a prompt (text) nor an input_length (tokens)")
    if "output_length" in row and not _positive(row["output_length"]):
        raise _wrong(path, number, f"output_length {row['output_length']!r} is no number of tokens")
    if "timestamp" in row and not (isinstance(row["timestamp"], int | float) and row["timestamp"] >= 0):
        raise _wrong(path, number, f"timestamp {row['timestamp']!r} is no number of milliseconds")
    keys = row.get("hash_ids", [])
    if not isinstance(keys, list) or not all(isinstance(key, int) and key >= 0 for key in keys):
        raise _wrong(path, number, "hash_ids is no list of numbers")
    return row


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _wrong(path: Path, number: int, why: str) -> UsageError:
    return UsageError(
        f"{path}:{number}: no trace of requests", why=why, hint='{"timestamp": 0, "input_length": 900, ...} a line'
    )
