"""How fast two deployments answered the same prompts, figure beside figure. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trtllm_kit.bench.compare import Compared, compare, figures
from trtllm_kit.bench.figures import figures_of
from trtllm_kit.bench.record import Counted, Record
from trtllm_kit.bench.result import Worth, document_of
from trtllm_kit.migrate.comparison.sides import Measured

STREAMED = ("ttft.p50", "ttft.p99", "tpot.p50", "gap.p99", "e2e.p50", "e2e.p99", "output_tokens_per_second",
            "requests_per_second")  # fmt: skip
WHOLE = ("e2e.p50", "e2e.p99", "requests_per_second")
"""Figures that are shown, of answers in pieces and of whole ones."""
JUDGED = ("ttft.p50", "tpot.p50", "e2e.p50", "output_tokens_per_second", "requests_per_second")
"""Those of them that a limit holds for: with few prompts no tail is known."""
_SUREST = (Counted.SERVER, Counted.TOKENIZER, Counted.LIMIT, Counted.PIECES)
_OF_TOKENS = ("tpot.p50", "output_tokens_per_second")


def compared_speed(
    old: Measured, new: Measured, same: frozenset[int], slower: float | None
) -> tuple[Compared, list[str]]:
    """Return both sides' figures, and why some of them compare badly; ``same`` holds prompts (from 0) of equal answers.

    Equal answers have equally many tokens: both sides' are counted by the surer of their sources. ``slower`` is the
    share by which a figure may be worse, or None.
    """
    streams = old.streams and new.streams
    records = evened(old.records, new.records, same)
    runs = _run(records[0], old), _run(records[1], new)
    shown = STREAMED if streams else WHOLE
    doubts = _counted_apart(runs) if streams else []
    names = [name for name in JUDGED if name in shown and not (doubts and name in _OF_TOKENS)]
    held = [figures(run) for run in runs]
    gate = {name: slower for name in names if slower is not None and all(name in one for one in held)}
    found = compare(runs[0], runs[1], gate)
    rows = tuple(row for name in shown for row in found.rows if row.name == name)
    return replace(found, rows=rows, doubts=tuple(_named(doubt) for doubt in found.doubts)), doubts


def evened(
    old: Sequence[Record], new: Sequence[Record], same: frozenset[int]
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Return the records of both sides, those of equal answers with one count of tokens."""
    others = {record.number: record for record in new}
    surer = {
        record.number: min(record, others[record.number], key=lambda one: _SUREST.index(one.counted))
        for record in old
        if record.number in same and record.number in others
    }
    return tuple(_as(one, surer) for one in old), tuple(_as(one, surer) for one in new)


def _as(record: Record, surer: Mapping[int, Record]) -> Record:
    sure = surer.get(record.number)
    return record if sure is None else replace(record, answer=sure.answer, counted=sure.counted)


def _run(records: tuple[Record, ...], measured: Measured) -> dict[str, Any]:
    found = figures_of(records)
    return document_of({}, [found], found, measured.lag, records, Worth())


def _counted_apart(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say where the sides' tokens are counted by other means."""
    ways = [sorted(run["figures"]["tokens_counted_by"]) for run in runs]
    if ways[0] == ways[1]:
        return []
    told = " and ".join(" or ".join(one) or "nothing" for one in ways)
    return [f"tokens are counted by {told}: rates of tokens compare badly, and are not judged; --tokenizer counts both"]


def _named(doubt: str) -> str:
    side, _, words = doubt.partition(": ")
    return f"{ {'A': 'old', 'B': 'new'}[side] }: {words}"
