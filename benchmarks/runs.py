"""How measured rows were run: settings and load that their table leaves out, from ``runs.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.silicon import Row
from trtllm_kit.estimate.hold import EveryRank, FullStep
from trtllm_kit.plan.formats import Formats

PATH = Path(__file__).with_name("runs.yaml")


@dataclass(frozen=True, slots=True)
class Run:
    """What one row was run with."""

    name: str
    formats: Formats
    max_seq_len: int
    max_num_tokens: int
    max_batch_size: int
    """Requests of a step; with attention data parallelism of each rank."""
    kv_fraction: float
    shortest: float
    """Lengths are drawn evenly between this share of the nominal one and all of it."""
    slots: int
    """Requests at once of one replica."""
    requests: int
    """Of the whole run of one replica."""
    hold: FullStep | EveryRank | None
    """What prompts wait for."""
    draft_tokens: int
    certainty: str
    source: str


def run_of(row: Row) -> Run:
    """Return how a row was run.

    Raises ``LookupError`` when no run of ``runs.yaml`` fits it.
    """
    for entry in _document():
        if _fits(entry["rows"], row):
            return _run(entry, row)
    raise LookupError(f"{PATH.name} has no run for {row.label}")


def _run(entry: Mapping[str, Any], row: Row) -> Run:
    length = row.prompt + row.answer + entry["spare_tokens"]
    slots = row.concurrency // row.replicas
    drafts = entry.get("draft_tokens", {}).get("attention_dp" if row.attention_dp else "plain", 0)
    ranks = row.tensor if row.attention_dp else 1
    batch = -(-slots // ranks) if entry["max_batch_size"] == "concurrency" else entry["max_batch_size"]
    fractions = (one["value"] for one in entry.get("kv_fractions", ()) if _fits(one["rows"], row))
    return Run(
        name=entry["name"],
        formats=_formats(entry["formats"]),
        max_seq_len=length,
        max_num_tokens=_num_tokens(entry, row, length, (1 + drafts) * slots),
        max_batch_size=batch,
        kv_fraction=next(fractions, entry["kv_fraction"]),
        shortest=entry["shortest"],
        slots=slots + entry.get("more_slots", 0),
        requests=entry["prompts"] * slots,
        hold=_hold(entry, row),
        draft_tokens=drafts,
        certainty=entry["certainty"],
        source=entry["source"],
    )


_SPARE = 512
"""Tokens beside the longest prompt that aiconfigurator's generator leaves a step."""


def _hold(entry: Mapping[str, Any], row: Row) -> FullStep | EveryRank | None:
    """Return what prompts waited for; ranks that wait for each other need no full step."""
    balance, wait = entry.get("balance"), entry.get("wait")
    if row.attention_dp and balance:
        return EveryRank(balance["iterations"], balance["batching_iterations"])
    return FullStep(wait["ratio"], wait["iterations"]) if wait and _fits(wait["rows"], row) else None


def _num_tokens(entry: Mapping[str, Any], row: Row, length: int, generated: int) -> int:
    asked = entry["max_num_tokens"]
    if asked == "sequence":
        return length
    if asked == "prompt":
        return row.prompt + row.concurrency // row.replicas + _SPARE
    if asked != "batch":
        return int(asked)
    shared = generated // row.tensor if row.attention_dp else generated
    return max((shared + row.prompt + 127) // 64 * 64, int(entry.get("least_num_tokens", 0)))


def _formats(said: Mapping[str, Any]) -> Formats:
    exclude = tuple(said.get("exclude", ("lm_head",)))
    return Formats(weights=said["weights"], kv_cache=said["kv_cache"], exclude=exclude)


def _fits(conditions: Mapping[str, Any], row: Row) -> bool:
    return all(_holds(name, wanted, row) for name, wanted in conditions.items())


def _holds(name: str, wanted: Any, row: Row) -> bool:
    if name == "since":
        return row.day >= str(wanted)
    if name == "until":
        return row.day <= str(wanted)
    if name.endswith("_below"):
        return bool(getattr(row, name.removesuffix("_below")) < wanted)
    if name.endswith("_from"):
        return bool(getattr(row, name.removesuffix("_from")) >= wanted)
    found = getattr(row, name)
    return found in wanted if isinstance(wanted, list) else found == wanted


@cache
def _document() -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load(PATH.read_text("utf-8"))["runs"])
