"""Both sources of step times on the same measured rows: ``compare_aic.py PYTHON [ROWS.csv]``.

PYTHON is the interpreter of an environment with aiconfigurator-core. Both run through the same simulation, so what
differs is the step times; neither is fitted here. ``--every N`` takes one row in N.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.accuracy import ROWS  # noqa: E402  # needs the path above
from benchmarks.figures import errors_of  # noqa: E402
from benchmarks.groups import group_of  # noqa: E402
from benchmarks.points import Point, Times, point_of, times_of  # noqa: E402
from benchmarks.silicon import read_table  # noqa: E402
from trtllm_kit.errors import KitError  # noqa: E402
from trtllm_kit.estimate.step_time import StepClock  # noqa: E402
from trtllm_kit.tune.aic import AicClock, tabulated  # noqa: E402

MODELS = {
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B-FP8",
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "gpt-oss-120b": "openai/gpt-oss-120b",
}
"""Hub ids that the package carries; DeepSeek's stored format stands for its FP4 too."""


def main(arguments: list[str]) -> int:
    """Print the errors of both sources by group."""
    parser = argparse.ArgumentParser(description="step times of aiconfigurator-core beside the kit's own")
    parser.add_argument("python", help="interpreter of an environment with aiconfigurator-core")
    parser.add_argument("rows", nargs="?", type=Path, default=ROWS, help="CSV of measured rows")
    parser.add_argument("--every", type=int, default=4, help="take one row in so many")
    asked = parser.parse_args(arguments)
    if not asked.rows.is_file():
        print(f"comparison: SKIPPED, no measured rows at {asked.rows}")
        return 0
    groups: dict[str, list[tuple[Point, Times, Times]]] = {}
    refused: dict[str, int] = {}
    clocks = Clocks(asked.python)
    for row in read_table(asked.rows).rows[:: asked.every]:
        point = point_of(row)
        try:
            theirs = times_of(point, clocks.of(point))
        except KitError as error:
            reason = f"{error.what}: {error.why}"
            refused[reason] = refused.get(reason, 0) + 1
            continue
        own = times_of(point, StepClock(point.subject))
        groups.setdefault(group_of(point), []).append((point, own, theirs))
    print("\n".join(_lines(groups)))
    for reason, count in refused.items():
        print(f"  no answer for {count} rows: {reason}")
    return 0


class Clocks:
    """Tables of subjects, one process call for each that is not like another but in its limits."""

    def __init__(self, python: str) -> None:
        self.python = python
        self.kept: dict[tuple[object, ...], AicClock | KitError] = {}

    def of(self, point: Point) -> AicClock:
        """Return the clock of a point; raises ``KitError`` where there is none, each time it is asked for."""
        row, subject = point.row, point.subject
        key = (row.model, row.system, row.precision, row.tensor, row.expert, row.attention_dp)
        if key not in self.kept:
            wide = replace(subject, max_batch_size=512, max_num_tokens=32768, max_seq_len=16384)
            try:
                self.kept[key] = tabulated(wide, MODELS[row.model], self.python)
            except KitError as error:
                self.kept[key] = error
        found = self.kept[key]
        if isinstance(found, KitError):
            raise found
        return found


def _lines(groups: dict[str, list[tuple[Point, Times, Times]]]) -> Iterator[str]:
    yield "mean and median error, bias; aiconfigurator's TTFT has no time outside the engine"
    for name, ones in sorted(groups.items()):
        yield f"{name}: {len(ones)} rows"
        own, theirs = [(one[0].row, one[1]) for one in ones], [(one[0].row, one[2]) for one in ones]
        for source, found in (("own", own), ("aiconfigurator", theirs)):
            tpot = errors_of([(times.tpot_s, row.tpot_s) for row, times in found])
            ttft = errors_of([(times.ttft_s, row.ttft_s) for row, times in found])
            shown = (f"{errors.mape:7.1%} {errors.median:7.1%} {errors.bias:+7.1%}" for errors in (tpot, ttft))
            yield f"  {source:16} TPOT {next(shown)}   TTFT {next(shown)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
