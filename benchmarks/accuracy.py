"""How far the estimate is from measured servers: ``make accuracy``, or ``accuracy.py [ROWS.csv] [PUBLISHED.yaml]``.

Printed are the errors by group of rows, what they are held to, published throughput, the times and choices that
published texts state, what was assumed, and the constants. Exit 1 when a figure is worse than ``accuracy.json`` has it;
``--record`` writes that file, ``--page FILE`` the page of the documentation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import accuracy_report as report  # noqa: E402  # needs the path above
from benchmarks.accuracy_record import SAMPLE, load, save, worse  # noqa: E402
from benchmarks.accuracy_run import Findings, find  # noqa: E402

ROWS = ROOT.parent / "shared" / "perf" / "silicon_trtllm_agg.csv"
PUBLISHED = ROOT.parent / "shared" / "contract" / "llmapi-contract.yaml"
RECORD = Path(__file__).with_name("accuracy.json")


def main(arguments: list[str]) -> int:
    """Print all figures; 1 when one is worse than recorded, 0 too where there is nothing to compare with."""
    asked = _parser().parse_args(arguments)
    if not asked.rows.is_file():
        print(f"accuracy: SKIPPED, no measured rows at {asked.rows}")
        print("  try: systems/silicon_sample.csv of the wheel aiconfigurator-core, as the first argument")
        return 0
    began = time.perf_counter()
    published = asked.published if asked.published.is_file() else None
    found = find(asked.rows, published, asked.jobs)
    print("\n".join(report.lines(found)))
    print(f"took {time.perf_counter() - began:.0f} s")
    if asked.page:
        asked.page.write_text(report.page(found, date.today().isoformat()), "utf-8")
    if asked.record:
        save(RECORD, found, find(asked.rows, published, asked.jobs, SAMPLE))
        return 0
    return _compared(found)


def _compared(found: Findings) -> int:
    problems = list(_problems(found))
    print("\n".join(problems) or f"no figure is worse than {RECORD.name} has it")
    return 1 if problems else 0


def _problems(found: Findings) -> Iterator[str]:
    if not RECORD.is_file():
        yield f"WORSE  {RECORD.name} is not there: --record writes it"
        return
    yield from worse(load(RECORD, "all"), found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="errors of the estimate against measured servers")
    parser.add_argument("rows", nargs="?", type=Path, default=ROWS, help="CSV of measured rows")
    parser.add_argument("published", nargs="?", type=Path, default=PUBLISHED, help="YAML with published throughput")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--record", action="store_true", help="write the figures to be held to")
    parser.add_argument("--page", type=Path, help="write the page of the documentation")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
