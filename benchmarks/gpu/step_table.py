"""Measured steps beside what was predicted: ``python -m benchmarks.gpu.step_table MEASURED.json PREDICTIONS.md``."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.ceiling_table import rows_of, table

_LINE = re.compile(r"\| Llama-3\.1-(8B|70B) \| (bf16|fp8) \| (.+?) \| ([\d.]+) \|")


def predicted(page: str) -> dict[tuple[str, str, str], float]:
    """Return the milliseconds on the GPU by model, format and step as the page of predictions calls them."""
    return {(one[1], one[2], one[3]): float(one[4]) for one in _LINE.finditer(page)}


def name_of(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return the names that the page of predictions has for a measured step."""
    tokens = f"{row['tokens']:,}"
    step = f"{row['sequences']} x {tokens} generation" if row["kind"] == "generation" else f"prompt of {tokens}"
    return row["model"].upper(), row["dtype"], step


def text(document: dict[str, Any], page: str) -> str:
    """Return the table of all steps and that of their errors."""
    said, groups = predicted(page), dict[tuple[str, str, str], list[float]]()

    def rows() -> Iterator[tuple[object, ...]]:
        for row in rows_of(document, "steps"):
            name = name_of(row)
            error = said[name] / row["ms"] - 1
            groups.setdefault((name[0], name[1], row["kind"]), []).append(error)
            yield *name, row["layers_run"], f"{row['ms']:.2f}", f"{said[name]:.2f}", f"{error:+.1%}"

    lines = list(table(("model", "format", "step", "layers run", "measured ms", "predicted ms", "error"), rows()))
    for kind in ("generation", "prompt"):
        both = [error for key, found in groups.items() if key[2] == kind for error in found]
        groups["both", "both", kind] = both
    errors = table(
        ("model", "format", "steps", "mean size of the error", "mean error"), (_summed(*one) for one in groups.items())
    )
    return "\n".join([*lines, "", *errors])


def _summed(key: tuple[str, str, str], found: list[float]) -> tuple[str, ...]:
    return *key, f"{statistics.mean(map(abs, found)):.1%}", f"{statistics.mean(found):+.1%}"


def main() -> int:
    """Print them."""
    measured, page = (Path(name).read_text() for name in sys.argv[1:3])
    print(text(json.loads(measured), page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
