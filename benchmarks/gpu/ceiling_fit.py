"""A few constants for the figures of ``ceilings``: ``python -m benchmarks.gpu.ceiling_fit FILE.json``.

What is fitted, and how, is ``trtllm_kit.doctor.fitted``, which makes constants of fewer kinds of work of the same rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.ceiling_table import BANDWIDTH, BYTES, PEAK, rows_of, table
from trtllm_kit.doctor.fitted import MOVED, Array, Fit, fit, product_model, rate_model


def errors(one: Fit) -> str:
    """Return mean and 90th percentile of the relative errors."""
    return f"{one.mean:.1%}, {one.ninety:.1%}"


def products(document: dict[str, Any]) -> Iterator[list[Any]]:
    """Fit plain products and those grouped by expert, by format."""
    for part in ("gemm", "moe"):
        for dtype in PEAK:
            rows = [row for row in rows_of(document, part) if row["dtype"] == dtype]
            if rows:
                m, n, k = (np.array([row[name] for row in rows], float) for name in _rows_columns(part))
                count = np.array([row.get("active_experts", 1) for row in rows], float)
                moved = (count * n * k + m * k) * BYTES[dtype] + m * n * 2
                model = product_model(moved, 2 * m * n * k, BANDWIDTH, PEAK[dtype])
                one = fit(model, np.array([row["ms"] for row in rows]) / 1e3, [0.8, 0.65, 3.0, 4.0])
                x = one.constants
                shown = f"{x[0]:.3f}", f"{x[1]:.3f}", f"{x[2]:.1f}", f"{x[3]:.1f}"
                yield [f"{part} {dtype}", len(rows), *shown, errors(one)]


def _rows_columns(part: str) -> tuple[str, str, str]:
    return ("m", "n", "k") if part == "gemm" else ("rows", "n", "k")


def one_rate(name: str, work: Array, seconds: Array, of: float) -> list[Any]:
    """Fit an overhead and a share of one rate."""
    found = fit(rate_model(work, of), seconds, [0.8, 5.0])
    return [name, len(work), f"{found.constants[0]:.3f}", f"{found.constants[1]:.1f}", errors(found)]


def attention(document: dict[str, Any]) -> Iterator[list[Any]]:
    """Fit attention and small operations; of several kernels the fastest counts."""
    best: dict[tuple[Any, ...], float] = {}
    for row in rows_of(document, "generation"):
        kind = f"generation {row['kv_dtype']} {row['heads']} over latents" if row["width"] == 576 else ""
        each = 576 if row["width"] == 576 else row["kv_heads"] * 256
        read = row["sequences"] * row["context"] * each * BYTES[row["kv_dtype"]]
        key = (kind or f"generation {row['kv_dtype']}", read, row["heads"], row["sequences"])
        best[key] = min(row["ms"], best.get(key, row["ms"]))
    for row in rows_of(document, "context"):
        pairs = row["new"] ** 2 / 2 if not row["past"] else row["new"] * (row["new"] + row["past"])
        operations = 2 * row["sequences"] * row["heads"] * (row["width"] + 128) * pairs
        key = (f"context, {row['width']} wide", operations, row["heads"], row["sequences"])
        best[key] = min(row["ms"], best.get(key, row["ms"]))
    for row in rows_of(document, "small"):
        if row["what"] in MOVED:
            best["small", MOVED[row["what"]] * row["rows"] * row["width"], row["what"], row["rows"]] = row["ms"]
    for kind in dict.fromkeys(key[0] for key in best):
        mine = {key: ms for key, ms in best.items() if key[0] == kind}
        work, seconds = np.array([key[1] for key in mine], float), np.array(list(mine.values())) / 1e3
        yield one_rate(kind, work, seconds, PEAK["bf16"] if kind.startswith("context") else BANDWIDTH)


def text(document: dict[str, Any]) -> str:
    """Return both tables."""
    one = table(
        ("products", "shapes", "of the bandwidth", "of the peak", "p", "µs beside", "error: mean, 90 %"),
        products(document),
    )
    two = table(("", "points", "of the rate", "µs beside", "error: mean, 90 %"), attention(document))
    return "\n".join([*one, "", *two])


def main() -> int:
    """Print them."""
    print(text(json.loads(Path(sys.argv[1]).read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
