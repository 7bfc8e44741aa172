"""What the constants are worth on rows that took no part in their fit: ``leave_out.py [ROWS.csv] [PUBLISHED.yaml]``.

Each system, and each model, is left out in turn: the constants are fitted on the other rows and published figures, from
the values before the data, and the left-out rows are predicted with them. A card whose whole architecture is left out
takes the other architecture's constants, as a card without measurements does. The first case leaves nothing out: what
the same short fit reaches on rows that it knows. Takes many minutes; ``--write`` keeps the figures in
``left_out.json``, which ``accuracy.py`` prints.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.accuracy import PUBLISHED, ROWS  # noqa: E402  # needs the path above
from benchmarks.accuracy_report import LEFT_OUT  # noqa: E402
from benchmarks.figures import errors_of  # noqa: E402
from benchmarks.fit import Key, fit, free_constants, items_of, known_with, settings  # noqa: E402
from benchmarks.groups import UNKNOWN, group_of  # noqa: E402
from benchmarks.points import point_of, times_of  # noqa: E402
from benchmarks.published import Published, read_published  # noqa: E402
from benchmarks.silicon import Row, read_table  # noqa: E402
from trtllm_kit.estimate.step_time import StepClock  # noqa: E402

SYSTEMS = {"h200_sxm": "H200", "h100_sxm": "H100", "b200_sxm": "B200"}
"""Systems of measured rows, by the published tables' names of their cards."""
MODELS = ("llama-3.1-70b", "llama-3.1-8b", "qwen3-32b", "qwen3-235b-a22b", "deepseek-r1", "gpt-oss-120b")
ARCHITECTURES = {"b200_sxm": "blackwell"}
"""Systems that alone have measured rows of their architecture."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing left out."""

    kind: str
    name: str

    def holds(self, row: Row) -> bool:
        """Whether a measured row is left out."""
        if self.kind == "nothing":
            return False
        return (row.system if self.kind == "system" else row.model) == self.name

    def holds_published(self, row: Published) -> bool:
        """Whether a published figure is left out."""
        if self.kind == "nothing":
            return False
        if self.kind == "model":
            return row.model == self.name
        alike = row.gpu in ("GB200", "B200", "RTX6000Pro") if self.name in ARCHITECTURES else False
        return alike or row.gpu == SYSTEMS[self.name]


def main(arguments: list[str]) -> int:
    """Print the errors of each case, as shares."""
    parser = argparse.ArgumentParser(description="errors of rows that took no part in the fit")
    parser.add_argument("rows", nargs="?", type=Path, default=ROWS)
    parser.add_argument("published", nargs="?", type=Path, default=PUBLISHED)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--sample", type=int, default=14, help="rows of a group that are fitted on, at most")
    parser.add_argument("--every", type=int, default=3, help="take one left-out row in so many")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    asked = parser.parse_args(arguments)
    if not asked.rows.is_file():
        print(f"left out: SKIPPED, no measured rows at {asked.rows}")
        return 0
    cases = [Case("nothing", "left out"), *(Case("system", name) for name in SYSTEMS)]
    cases += [Case("model", name) for name in MODELS]
    work = partial(left_out, asked.rows, asked.published, asked.sample, asked.every)
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("fork")) as pool:
        found = dict(zip((f"{case.kind} {case.name}" for case in cases), pool.map(work, cases), strict=True))
    print(json.dumps(found, indent=1))
    if asked.write:
        LEFT_OUT.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


def left_out(rows: Path, published: Path, sample: int, every: int, case: Case) -> dict[str, float]:
    """Fit without a case's rows, and return the errors of those rows as shares."""
    table = read_table(rows).rows
    figures = read_published(published) if published.is_file() else []
    others = [row for row in figures if not case.holds_published(row)]
    values = _fitted([row for row in table if not case.holds(row)], others, sample)
    if case.kind == "system" and case.name in ARCHITECTURES:
        values = _transferred(values, ARCHITECTURES[case.name])
    points = [point_of(row) for row in table if case.holds(row) or case.kind == "nothing"]
    points = [point for point in points if group_of(point) != UNKNOWN and not point.run.draft_tokens][::every]
    tpot, ttft = [], []
    for point in points:
        times = times_of(point, StepClock(point.subject, known_with(point.subject, values)))
        tpot.append((times.tpot_s, point.row.tpot_s))
        ttft.append((times.ttft_s, point.row.ttft_s))
    tpot_errors, ttft_errors = errors_of(tpot), errors_of(ttft)
    return {
        "rows": len(points),
        "tpot": round(tpot_errors.mape, 4),
        "tpot_bias": round(tpot_errors.bias, 4),
        "ttft": round(ttft_errors.mape, 4),
        "ttft_median": round(ttft_errors.median, 4),
        "ttft_bias": round(ttft_errors.bias, 4),
    }


def _fitted(rows: Sequence[Row], figures: Sequence[Published], sample: int) -> dict[Key, float]:
    """Return constants fitted from the values before the data, so that nothing of the left-out rows is in them."""
    values = {key: settings()["bounds"][key[1]][0] for key in free_constants()}
    for _ in range(2):
        values = fit(items_of(rows, figures, values, sample), values, rounds=5).values
    return values


def _transferred(values: dict[Key, float], architecture: str) -> dict[Key, float]:
    """Return values in which an architecture takes those of Hopper, where it has the constant."""
    changed = {key: values.get(("hopper", key[1]), value) for key, value in values.items() if key[0] == architecture}
    return values | changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
