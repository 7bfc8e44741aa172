"""The figures that accuracy is held to: ``accuracy.json``, and what of it became worse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.accuracy_run import Findings, Group
from benchmarks.decisions import CHOSEN_RANKS, SHARES
from benchmarks.figures import Errors

ROOM = 0.005
"""How much an error may grow, as a share of what was measured, before it is called worse: sums in another order."""


def figures(found: Findings) -> dict[str, float]:
    """Return all figures that are held: errors as shares, and 1 or 0 for a choice; less is better for all of them."""
    listed = {f"{group.name}: {name}": errors.mape for group in found.groups for name, errors in _errors(group)}
    listed |= {
        f"{held.target.name}: {name}": errors.mape for held in found.held for name, errors in _errors(held.group)
    }
    for one in found.first_tokens:
        listed[f"first token, {one.model}, {one.prompt} tokens"] = abs(one.error)
    for table in found.throughput:
        listed[f"published, {table.model}: median"] = table.errors.median
        listed[f"published, {table.model}: rank correlation below 1"] = 1 - table.rank
    for name, apart in shares_apart(found).items():
        listed[f"communication, {name}"] = apart
    listed |= {f"wrong choice: {name}": float(not right) for name, right in choices(found).items()}
    return {name: round(value, 4) for name, value in listed.items()}


def _errors(group: Group) -> Iterator[tuple[str, Errors]]:
    yield "TPOT", group.tpot
    yield "TTFT", group.ttft


def shares_apart(found: Findings) -> dict[str, float]:
    """Return how far each share of communication is from the stated one."""
    return {name: abs(share - SHARES[name]) for name, share in found.shares.items()}


def choices(found: Findings) -> dict[str, bool]:
    """Return whether each choice is the stated one."""
    best = {name: max(rates, key=rates.__getitem__) for name, rates in found.ranks.items() if rates}
    return {"700 W or 1,000 W": found.power.same_choice} | {
        f"ranks for Llama 2 70B, {name}": best.get(name) == ranks for name, ranks in CHOSEN_RANKS.items()
    }


def worse(recorded: Mapping[str, float], found: Findings) -> Iterator[str]:
    """Yield a line for each figure that is worse than recorded, or that no longer is there."""
    now = figures(found)
    for name, before in recorded.items():
        if name not in now:
            if found.throughput or not name.startswith("published"):
                yield f"WORSE  {name}: recorded {before:.1%}, not computed any more"
        elif now[name] > before + ROOM:
            yield f"WORSE  {name}: {now[name]:.1%}, recorded {before:.1%}"


def save(path: Path, every_row: Findings, sample: Findings) -> None:
    """Write the figures to be held to, of all rows and of a sample of them."""
    document = {"all": figures(every_row), "sample": figures(sample)}
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


def load(path: Path, which: str) -> dict[str, float]:
    """Read the figures that are held: those of ``all`` rows, or of the ``sample``."""
    recorded: dict[str, dict[str, float]] = json.loads(path.read_text("utf-8"))
    return recorded[which]


SAMPLE = 8
"""One row in so many is in the sample."""
