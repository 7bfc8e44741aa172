"""A few constants for the figures of ``ceilings``: ``python -m benchmarks.gpu.ceiling_fit FILE.json``.

A product takes ``overhead + (memory^p + arithmetic^p)^(1/p)``: its bytes over a share of the bandwidth, and its
operations over a share of the peak. Attention and small operations take an overhead and one of both. Constants make the
mean of |log(fitted / measured)| small, by steps along one logarithm at a time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.ceiling_table import BANDWIDTH, BYTES, PEAK, rows_of, table

Array = NDArray[np.float64]
Model = Callable[[Array], Array]
MOVED = {"add_norm": 8, "add_norm_fp8": 7, "silu_mul": 6, "silu_mul_fp8": 5, "to_fp8": 3}
"""Bytes that a small operation reads and writes for each of its row's outputs."""


def fitted(model: Model, measured: Array, start: list[float]) -> Array:
    """Return the constants that lie nearest."""

    def loss(point: Array) -> float:
        return float(np.mean(np.abs(np.log(model(np.exp(point)) / measured))))

    point, step = np.log(np.array(start)), 0.4
    best = loss(point)
    while step > 1e-4:
        before = best
        for index in range(len(point)):
            for sign in (step, -step):
                moved = point.copy()
                moved[index] += sign
                if (value := loss(moved)) < best:
                    point, best = moved, value
        if best >= before:
            step /= 2
    return np.exp(point)


def errors(model: Model, measured: Array, constants: Array) -> str:
    """Return mean and 90th percentile of the relative errors."""
    apart = np.abs(model(constants) / measured - 1)
    return f"{apart.mean():.1%}, {np.quantile(apart, 0.9):.1%}"


def product_model(moved: Array, operations: Array, peak: float) -> Model:
    """Return the seconds of products by (share of bandwidth, share of peak, p, overhead in µs)."""

    def model(x: Array) -> Array:
        memory, arithmetic = moved / (BANDWIDTH * x[0]), operations / (peak * x[1])
        found: Array = x[3] * 1e-6 + (memory ** x[2] + arithmetic ** x[2]) ** (1 / x[2])
        return found

    return model


def products(document: dict[str, Any]) -> Iterator[list[Any]]:
    """Fit plain products and those grouped by expert, by format."""
    for part in ("gemm", "moe"):
        for dtype in PEAK:
            rows = [row for row in rows_of(document, part) if row["dtype"] == dtype]
            if rows:
                m, n, k = (np.array([row[name] for row in rows], float) for name in _rows_columns(part))
                count = np.array([row.get("active_experts", 1) for row in rows], float)
                moved = (count * n * k + m * k) * BYTES[dtype] + m * n * 2
                model = product_model(moved, 2 * m * n * k, PEAK[dtype])
                seconds = np.array([row["ms"] for row in rows]) / 1e3
                x = fitted(model, seconds, [0.8, 0.65, 3.0, 4.0])
                shown = f"{x[0]:.3f}", f"{x[1]:.3f}", f"{x[2]:.1f}", f"{x[3]:.1f}"
                yield [f"{part} {dtype}", len(rows), *shown, errors(model, seconds, x)]


def _rows_columns(part: str) -> tuple[str, str, str]:
    return ("m", "n", "k") if part == "gemm" else ("rows", "n", "k")


def one_rate(name: str, work: Array, seconds: Array, of: float) -> list[Any]:
    """Fit an overhead and a share of one rate."""

    def model(x: Array) -> Array:
        found: Array = x[1] * 1e-6 + work / (of * x[0])
        return found

    x = fitted(model, seconds, [0.8, 5.0])
    return [name, len(work), f"{x[0]:.3f}", f"{x[1]:.1f}", errors(model, seconds, x)]


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
