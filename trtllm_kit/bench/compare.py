"""Two runs held against each other, and whether the second is worse than is allowed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from trtllm_kit.errors import ResultUnfit, UsageError
from trtllm_kit.units import parse_share

MORE_IS_BETTER = ("output_tokens_per_second", "requests_per_second", "user_tokens_per_second", "goodput", "kept_share",
                  "nth_tokens_per_second", "answered_share")  # fmt: skip
LESS_IS_BETTER = ("ttft", "tpot", "gap", "e2e")
_AT = ("mean", "p50", "p90", "p99", "p99.9")
_SAME_LOAD = (
    "scenario",
    "api",
    "isl",
    "osl",
    "concurrency",
    "rate",
    "arrivals",
    "requests",
    "seed",
    "trace",
    "shared_prefix",
    "prefixes",
    "turns",
    "shortest",
    "ramp",
    "load_fraction",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both runs."""

    name: str
    a: float
    b: float
    less_is_better: bool
    limit: float | None = None
    """By which share it may become worse; None where nothing is asked of it."""

    @property
    def change(self) -> float:
        """The second over the first, less 1; infinite where the first is 0 and the second is not."""
        return self.b / self.a - 1 if self.a else inf if self.b else 0.0

    @property
    def worse_by(self) -> float:
        """By which share it became worse; below 0 where it became better."""
        return self.change if self.less_is_better else -self.change

    @property
    def broken(self) -> bool:
        """Whether it became worse than is allowed."""
        return self.limit is not None and self.worse_by > self.limit


@dataclass(frozen=True, slots=True)
class Compared:
    """All figures that both runs have."""

    rows: tuple[Row, ...]
    differences: tuple[str, ...]
    """In what the load differed: then figures compare two things at once."""
    doubts: tuple[str, ...]
    """Why one of the runs may not be believed."""

    @property
    def broken(self) -> tuple[Row, ...]:
        """Figures that became worse than is allowed."""
        return tuple(row for row in self.rows if row.broken)

    def document(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        rows = [
            {
                "name": row.name,
                "a": row.a,
                "b": row.b,
                "change": None if row.change == inf else row.change,
                "limit": row.limit,
                "broken": row.broken,
            }
            for row in self.rows
        ]
        return {
            "rows": rows,
            "differences": list(self.differences),
            "doubts": list(self.doubts),
            "verdict": "no" if self.broken else "yes",
        }


def gate_of(text: str | None) -> dict[str, float]:
    """Read ``ttft.p99=10%,output_tokens_per_second=5%``; raises ``UsageError``."""
    gate: dict[str, float] = {}
    for part in filter(None, (text or "").split(",")):
        name, _, share = part.strip().partition("=")
        if name not in _names():
            known = ", ".join(sorted(_names()))
            raise UsageError(f"--gate {part} is not understood", why=f"known are {known}", hint="--gate ttft.p99=10%")
        try:
            gate[name] = parse_share(share)
        except ValueError as error:
            raise UsageError(
                f"--gate {part} is not understood", why=str(error), hint="--gate ttft.p99=10%,e2e.p50=5%"
            ) from None
    return gate


def compare(a: Mapping[str, Any], b: Mapping[str, Any], gate: Mapping[str, float]) -> Compared:
    """Compare the second run with the first. Raises ``UsageError`` for a gate on a figure that one of them lacks.

    Raises ``ResultUnfit`` for a gate on a run that was interrupted, and for runs with no figure in common.
    """
    cut = [name for name, run in (("A", a), ("B", b)) if run.get("interrupted")]
    if gate and cut:
        raise ResultUnfit(
            f"--gate on run {cut[0]}",
            why="it was interrupted, and its figures are not those of the whole load",
            hint="run it to its end, or compare without --gate",
        )
    mine, others = figures(a), figures(b)
    for name in gate:
        if name not in mine or name not in others:
            raise UsageError(
                f"--gate {name}", why=f"run {'A' if name not in mine else 'B'} has no such figure", hint="leave it out"
            )
    rows = tuple(
        Row(name, mine[name], others[name], name.partition(".")[0] in LESS_IS_BETTER, gate.get(name))
        for name in mine
        if name in others
    )
    if not rows:
        raise ResultUnfit(
            "the runs have no figure in common", why="one of them has none", hint="compare runs that were answered"
        )
    asked = a["asked"], b["asked"]
    differences = tuple(
        f"{key}: {asked[0].get(key)} and {asked[1].get(key)}"
        for key in _SAME_LOAD
        if asked[0].get(key) != asked[1].get(key)
    )
    return Compared(rows, differences, tuple(_doubts(a, "A")) + tuple(_doubts(b, "B")))


def _doubts(run: Mapping[str, Any], name: str) -> list[str]:
    found = []
    if run.get("interrupted"):
        found.append(f"{name}: the run was interrupted")
    if run["client"].get("bottleneck"):
        found.append(f"{name}: the client was the bottleneck: {run['client']['bottleneck']}")
    if run["figures"].get("failures"):
        found.append(f"{name}: failed requests: {run['figures']['failures']}")
    return found


def figures(run: Mapping[str, Any]) -> dict[str, float]:
    """Return every figure of a run that can be compared, by name, e.g. ``ttft.p99``."""
    held = run["figures"]
    found = {name: float(held[name]) for name in MORE_IS_BETTER if isinstance(held.get(name), int | float)}
    if held["asked"]:
        found["answered_share"] = held["answered"] / held["asked"]
    for name in LESS_IS_BETTER:
        one = held["latencies"].get(name, {})
        found |= {f"{name}.{at}": float(one[at]) for at in _AT if at in one}
    return found


def _names() -> set[str]:
    return {*MORE_IS_BETTER, *(f"{name}.{at}" for name in LESS_IS_BETTER for at in _AT)}
