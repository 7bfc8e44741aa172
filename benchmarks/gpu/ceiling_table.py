"""The figures of ``ceilings`` as Markdown: ``python -m benchmarks.gpu.ceiling_table FILE.json``.

Shares are of 4.8 TB/s and 989 (bf16) and 1,979 (e4m3) TFLOP/s, an H200's datasheet without sparsity.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

BANDWIDTH = 4.8e12
PEAK = {"bf16": 989e12, "fp8": 1979e12, "fp8_rows": 1979e12, "fp8_blocks": 1979e12}
BYTES = {"bf16": 2, "e4m3": 1, "fp8": 1, "fp8_rows": 1, "fp8_blocks": 1}
SHAPES = ((28672, 4096), (57344, 8192), (8192, 28672), (1280, 8192), (8192, 1024))
"""(n, k) that the page shows: 8B's and 70B's gate and up, 70B's down, and 70B's QKV and output on eight ranks."""
ROWS = (1, 8, 16, 64, 128, 256, 512, 1024, 4096, 16384)
EXPERTS = ((128, 3072, 4096), (256, 4096, 7168), (128, 5760, 2880), (8, 28672, 4096))
"""Experts, n and k of the first layer of Qwen3 235B's, DeepSeek V3's, gpt-oss 120B's and Mixtral's."""
Row = dict[str, Any]


def rows_of(document: Row, part: str) -> list[Row]:
    """Return the rows of a part as objects, without those that torch had no kernel for."""
    found = document["parts"].get(part, {"columns": [], "rows": []})
    named = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    return [row for row in named if None not in row.values()]


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield the lines of a table."""
    cells = [str(cell) for cell in head]
    yield f"| {' | '.join(cells)} |"
    yield f"|{'---|' * len(cells)}"
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


def bound(row: Row) -> float:
    """Return the milliseconds that a product takes at the datasheet's rates."""
    m, n, k, size = row["m"], row["n"], row["k"], BYTES[row["dtype"]]
    moved = (n * k + m * k) * size + m * n * 2
    return 1e3 * max(moved / BANDWIDTH, 2 * m * n * k / PEAK[row["dtype"]])


def gemm(document: Row) -> Iterator[str]:
    """Products: microseconds and the share of the bound, by rows and shape."""
    found = {(row["dtype"], row["m"], row["n"], row["k"]): row for row in rows_of(document, "gemm")}
    for dtype in ("bf16", "fp8"):
        head = [f"{dtype}, m", *(f"{n} x {k}" for n, k in SHAPES)]
        yield from table(head, ([m, *(_product(found.get((dtype, m, n, k))) for n, k in SHAPES)] for m in ROWS))
        yield ""
    shapes = [(n, k) for dtype, m, n, k in found if dtype == "fp8_blocks" and m == 64]
    head = ["fp8 in blocks, m", *(f"{n} x {k}" for n, k in shapes)]
    yield from table(head, ([m, *(_product(found.get(("fp8_blocks", m, n, k))) for n, k in shapes)] for m in ROWS[1:]))


def _product(row: Row | None) -> str:
    return "" if row is None else f"{row['ms'] * 1e3:.1f} ({bound(row) / row['ms']:.0%})"


def context(document: Row) -> Iterator[str]:
    """Attention of a prompt: TFLOP/s of the faster kernel, by tokens and heads of the rank."""
    found: dict[tuple[int, int], float] = {}
    later = []
    for row in rows_of(document, "context"):
        new, past, wide = row["new"], row["past"], row["width"] + 128
        pairs = new * new / 2 if not past else new * (new + past)
        rate = 2 * row["sequences"] * row["heads"] * wide * pairs / row["ms"] / 1e9
        if past or row["sequences"] > 1 or row["width"] != 128:
            later.append((row["kernel"], row["sequences"], row["heads"], row["width"], new, past, f"{rate:.0f}"))
        else:
            found[new, row["heads"]] = max(rate, found.get((new, row["heads"]), 0.0))
    heads = sorted({one for _, one in found}, reverse=True)
    lengths = sorted({one for one, _ in found})
    yield from table(
        ["tokens", *(f"{one} heads" for one in heads)],
        ([length, *(f"{found[length, one]:.0f}" for one in heads)] for length in lengths),
    )
    yield ""
    yield from table(("kernel", "sequences", "heads", "width", "new", "cached", "TFLOP/s"), later)


def generation(document: Row) -> Iterator[str]:
    """Attention of one token: microseconds and TB/s of the fastest kernel, by sequences and context."""
    best: dict[tuple[Any, ...], float] = {}
    for row in rows_of(document, "generation"):
        key = (row["kv_dtype"], row["heads"], row["kv_heads"], row["width"], row["sequences"], row["context"])
        best[key] = min(row["ms"], best.get(key, row["ms"]))
    shown = (("bf16", 64, 8, 128), ("e4m3", 64, 8, 128), ("bf16", 8, 1, 128), ("bf16", 16, 1, 576))
    for dtype, heads, kv_heads, width in shown:
        kind = [key for key in best if key[:4] == (dtype, heads, kv_heads, width)]
        contexts, sequences = sorted({key[5] for key in kind})[::2], sorted({key[4] for key in kind})
        each = (kv_heads * 256 if width == 128 else width) * BYTES[dtype]
        name = f"{heads} heads, {kv_heads} KV" if width == 128 else f"{heads} heads over latents"
        rows = []
        for count in sequences:
            times = [best.get((dtype, heads, kv_heads, width, count, length)) for length in contexts]
            cells = [
                "" if ms is None else f"{ms * 1e3:.1f} ({count * length * each / ms / 1e9:.2f})"
                for ms, length in zip(times, contexts, strict=True)
            ]
            rows.append([count, *cells])
        yield from table([f"{dtype}, {name}: sequences", *contexts], rows)
        yield ""


def moe(document: Row) -> Iterator[str]:
    """Give products grouped by expert, the first layer of the experts: microseconds, TB/s of weights and TFLOP/s."""
    found: dict[tuple[int, ...], dict[str, str]] = {}
    for row in rows_of(document, "moe"):
        read = row["active_experts"] * row["n"] * row["k"] * BYTES[row["dtype"]] / row["ms"] / 1e9
        rate = 2 * row["rows"] * row["n"] * row["k"] / row["ms"] / 1e9
        key = tuple(row[name] for name in ("experts", "active_experts", "rows", "n", "k"))
        found.setdefault(key, {})[row["dtype"]] = f"{row['ms'] * 1e3:.0f} ({read:.2f}, {rate:.0f})"
    first = {key: cells for key, cells in found.items() if (key[0], key[3], key[4]) in EXPERTS}
    rows = [[*key, cells.get("bf16", ""), cells.get("fp8_rows", "")] for key, cells in first.items()]
    yield from table(("experts", "active", "rows", "n", "k", "bf16", "fp8 with scales of rows"), rows)


def links(document: Row) -> Iterator[str]:
    """Give collectives: microseconds in a graph and GB/s of the bus."""
    found = {(row["ranks"], row["bytes"], row["kind"]): row for row in rows_of(document, "links")}
    kinds = list(dict.fromkeys(kind for _, _, kind in found))
    sizes = list(dict.fromkeys((ranks, size) for ranks, size, _ in found))
    rows = []
    for ranks, size in sizes:
        one = [found.get((ranks, size, kind)) for kind in kinds]
        cells = ["" if row is None else f"{row['graph_ms'] * 1e3:.1f} ({row['bus_gb_per_second']:.0f})" for row in one]
        rows.append([ranks, f"{size // 1024:,}", *cells])
    yield from table(("ranks", "KiB", *kinds), rows)


def plain(document: Row, part: str, keep: int = 1) -> Iterator[str]:
    """Give every ``keep``-th row of a part as it is."""
    found = rows_of(document, part)[::keep]
    yield from table(found[0] if found else (), (row.values() for row in found))


def sections(document: Row) -> Iterator[tuple[str, str]]:
    """Yield the name of each part with its tables."""
    made = {"gemm": gemm, "context": context, "generation": generation, "moe": moe, "links": links}
    for part in document["parts"]:
        lines = made[part](document) if part in made else plain(document, part, 3 if part == "small" else 1)
        yield part, "\n".join(lines).strip()


def main() -> int:
    """Print all tables."""
    for part, text in sections(json.loads(Path(sys.argv[1]).read_text())):
        print(f"## {part}\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
