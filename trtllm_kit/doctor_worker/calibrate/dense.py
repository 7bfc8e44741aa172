"""Matrix products, copies, launches and small operations of one card.

Each function yields rows, of which ``HEADS`` names the columns. Milliseconds are medians of graph replays.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # as everyone calls it
from torch import Tensor

from .device_clock import E4M3, Pool, captured, milliseconds, replayed_milliseconds

BF16 = torch.bfloat16
Row = tuple[Any, ...]

HEADS = {
    "gemm": ("dtype", "m", "n", "k", "ms"),
    "moe": ("dtype", "experts", "active_experts", "rows", "n", "k", "ms"),
    "memory": ("what", "bytes_moved", "ms"),
    "launch": ("what", "count", "us_each"),
    "small": ("what", "rows", "width", "ms"),
}

LLAMA = {"8b": (4096, 14336, 32, 8), "70b": (8192, 28672, 64, 8)}
"""Hidden, intermediate, heads and KV heads of Llama 3.1; heads are of 128."""
VOCABULARY = 128256
ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192, 16384)
DEEPSEEK = ((2112, 7168), (3072, 1536), (24576, 1536), (7168, 2048), (7168, 16384), (4096, 7168))
"""(n, k) of DeepSeek V3 on eight ranks and on one, which has scales of blocks."""
EXPERTS = ((128, 8, 4096, 1536), (256, 8, 7168, 2048), (32, 8, 7168, 2048), (128, 4, 2880, 2880), (8, 2, 4096, 14336))
"""Experts here, routed ones, hidden and intermediate: Qwen3 235B, DeepSeek V3 (on one, on eight), gpt-oss, Mixtral."""


def shapes() -> list[tuple[int, int]]:
    """Return (n, k) of every linear layer of both models on 1, 2, 4 and 8 ranks, and of both heads."""
    found = []
    for hidden, wide, heads, kv_heads in LLAMA.values():
        for ranks in (1, 2, 4, 8):
            qkv = (heads + 2 * kv_heads) * 128 // ranks
            found += [(qkv, hidden), (hidden, heads * 128 // ranks)]
            found += [(2 * wide // ranks, hidden), (hidden, wide // ranks)]
        found.append((VOCABULARY, hidden))
    return list(dict.fromkeys(found))


def gemm(pool: Pool, small: bool) -> Iterator[Row]:
    """Time products (m, k) by (n, k) in bf16, in e4m3 with a scale of a tensor, of rows, and of blocks."""
    rows = (1, 16, 64) if small else ROWS
    for n, k in shapes()[:2] if small else shapes():
        for m in rows if n != VOCABULARY else [one for one in rows if one <= 1024]:
            yield ("bf16", m, n, k, product(pool, m, n, k))
            yield ("fp8", m, n, k, product_fp8(pool, m, n, k, "tensor"))
    for n, k in shapes()[:1] if small else ((10240, 8192), (57344, 8192), (8192, 28672)):
        for m in rows[::2]:
            yield ("fp8_rows", m, n, k, product_fp8(pool, m, n, k, "rows"))
    for n, k in DEEPSEEK[:1] if small else DEEPSEEK:
        for m in rows:
            yield ("fp8_blocks", m, n, k, product_fp8(pool, m, n, k, "blocks"))


def product(pool: Pool, m: int, n: int, k: int) -> float:
    """Return milliseconds of a product of bf16."""
    rows, out = pool.one((m, k)), torch.empty(m, n, dtype=BF16, device=pool.device)
    return milliseconds([partial(torch.mm, rows, one.t(), out=out) for one in pool.sets((n, k), BF16)])


def product_fp8(pool: Pool, m: int, n: int, k: int, scaled: str) -> float:
    """Return milliseconds of a product of e4m3 into bf16, or nan where torch has none of that kind."""
    if pool.device == "cpu":
        return math.nan
    rows = pool.one((m, k), E4M3)
    make = partial(torch.ones, device=pool.device, dtype=torch.float32)
    scales = {
        "tensor": lambda: (make(()), make(())),
        "rows": lambda: (make((m, 1)), make((1, n))),
        "blocks": lambda: (
            make((math.ceil(k / 128), m)).t(),
            make((math.ceil(n / 128), math.ceil(k / 128))).t(),
        ),
    }[scaled]()
    named = {"scale_a": scales[0], "scale_b": scales[1], "out_dtype": BF16, "use_fast_accum": scaled != "blocks"}
    return _or_nan([partial(torch._scaled_mm, rows, one.t(), **named) for one in pool.sets((n, k), E4M3)])


def _or_nan(calls: list[Callable[[], object]]) -> float:
    try:
        return milliseconds(calls)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        print(f"  left out: {str(error).splitlines()[0][:160]}", file=sys.stderr, flush=True)  # noqa: T201  # a program of its own
        return math.nan


def moe(pool: Pool, small: bool) -> Iterator[Row]:
    """Time grouped products of both layers of the experts; routing is uniform and random, so some get no row."""
    for experts, routed, hidden, wide in ((8, 2, 1024, 512),) if small else EXPERTS:
        for tokens in (4, 64) if small else (1, 4, 16, 64, 256, 1024, 4096, 16384):
            everywhere = 256 if (experts, hidden) == (32, 7168) else experts
            choice = torch.rand(tokens, everywhere).argsort(dim=1)[:, :routed]
            counts = torch.bincount(choice.flatten(), minlength=everywhere)[:experts]
            total, active = int(counts.sum()), int((counts > 0).sum())
            offsets = counts.cumsum(0).to(torch.int32).to(pool.device)
            for n, k in ((2 * wide, hidden), (hidden, wide)):
                if total:
                    yield ("bf16", experts, active, total, n, k, grouped(pool, (experts, total, n, k), offsets))
                    yield ("fp8_rows", experts, active, total, n, k, grouped_fp8(pool, (experts, total, n, k), offsets))


def grouped(pool: Pool, sizes: tuple[int, int, int, int], offsets: Tensor) -> float:
    """Return milliseconds of a grouped product of bf16."""
    experts, total, n, k = sizes
    rows, weights = pool.one((total, k)), pool.sets((experts, n, k), BF16, most=4)
    return _or_nan([partial(torch._grouped_mm, rows, one.transpose(-2, -1), offs=offsets) for one in weights])


def grouped_fp8(pool: Pool, sizes: tuple[int, int, int, int], offsets: Tensor) -> float:
    """Return milliseconds of a grouped product of e4m3 with scales of rows."""
    if pool.device == "cpu":
        return math.nan
    experts, total, n, k = sizes
    rows, weights = pool.one((total, k), E4M3), pool.sets((experts, n, k), E4M3, most=4)
    scales = torch.ones(total, device=pool.device), torch.ones(experts, n, device=pool.device)
    named = {"offs": offsets, "out_dtype": BF16, "use_fast_accum": True}
    return _or_nan(
        [partial(torch._scaled_grouped_mm, rows, one.transpose(-2, -1), *scales, **named) for one in weights]
    )


def memory(pool: Pool, small: bool) -> Iterator[Row]:
    """Time copies, reads and writes in the card's memory, and copies from and to the host's.

    ``copy`` is what the driver does in a graph, ``kernel copy`` a kernel of all multiprocessors.
    """
    for size in (1 << 20,) if small else (1 << 20, 1 << 23, 1 << 26, 1 << 28, 1 << 30, 1 << 32):
        elements = size // 2
        sources = pool.sets((elements,), BF16)
        out = torch.empty(elements, dtype=BF16, device=pool.device)
        yield ("copy", 2 * size, milliseconds([partial(out.copy_, one) for one in sources]))
        yield ("kernel copy", 2 * size, milliseconds([partial(torch.neg, one, out=out) for one in sources]))
        yield ("write", size, milliseconds([partial(out.fill_, 1.0)]))
        yield ("read", size, milliseconds([partial(torch.amax, one.view(-1, 4096), 1) for one in sources]))
    for size in (1 << 12,) if small else (1 << 12, 1 << 16, 1 << 20, 1 << 26):
        near = torch.empty(size // 2, dtype=BF16, device=pool.device)
        far = torch.empty(size // 2, dtype=BF16, pin_memory=pool.device != "cpu")
        yield ("to host", size, milliseconds([partial(far.copy_, near, non_blocking=True)]))
        yield ("from host", size, milliseconds([partial(near.copy_, far, non_blocking=True)]))


def launch(pool: Pool, small: bool) -> Iterator[Row]:
    """Time launches: one by one by the host, kernel to kernel in a graph, and a graph as a whole."""
    value = torch.zeros(1, device=pool.device)
    if pool.device == "cpu":
        return
    for _ in range(200):
        value.add_(1)
    torch.cuda.synchronize()
    count, begun = 2000, time.perf_counter()
    for _ in range(count):
        value.add_(1)
    host = time.perf_counter() - begun
    torch.cuda.synchronize()
    yield ("eager, host's side", count, host / count * 1e6)
    yield ("eager, to the end", count, (time.perf_counter() - begun) / count * 1e6)
    for nodes in (1, 10, 100) if small else (1, 10, 100, 500, 1000, 2000):
        graph = captured([partial(value.add_, 1)] * nodes)
        yield ("graph, one kernel after another", nodes, replayed_milliseconds(graph, 20) / nodes * 1e3)
        yield ("graph, host's side of a launch", nodes, host_microseconds(graph, wait=False))
        yield ("graph, launch to the end seen by the host", nodes, host_microseconds(graph, wait=True))


def host_microseconds(graph: torch.cuda.CUDAGraph, wait: bool) -> float:
    """Return the host's median microseconds of a replay."""
    taken = []
    for _ in range(20):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        graph.replay()
        if wait:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[10] * 1e6


def small_operations(pool: Pool, small: bool) -> Iterator[Row]:
    """Time norms, activations, roundings to e4m3, rotations of keys, and what picks a token."""
    from . import small_kernels as kernels

    if pool.device != "cpu":
        kernels.check(pool.device)
    for width in (4096,) if small else (4096, 8192, 16384, 28672):
        for rows in (1, 64) if small else (1, 16, 64, 256, 1024, 4096, 16384):
            sets = pool.sets((rows, 2 * width), BF16)
            if pool.device != "cpu":
                for name in ("add_norm", "add_norm_fp8", "silu_mul", "silu_mul_fp8", "to_fp8"):
                    yield (name, rows, width, milliseconds([partial(kernels.run, name, one) for one in sets]))
            first = [one.view(-1, width)[:rows] for one in sets]
            weight = pool.one((width,))
            yield (
                "torch rms_norm",
                rows,
                width,
                milliseconds([partial(F.rms_norm, one, (width,), weight) for one in first]),
            )
    for rows in (1, 8) if small else (1, 8, 64, 256):
        logits = [torch.randn(rows, VOCABULARY, device=pool.device) for _ in range(4)]
        yield ("argmax", rows, VOCABULARY, milliseconds([partial(torch.argmax, one, -1) for one in logits]))
        yield ("softmax", rows, VOCABULARY, milliseconds([partial(torch.softmax, one, -1) for one in logits]))
        yield ("top 50", rows, VOCABULARY, milliseconds([partial(torch.topk, one, 50) for one in logits]))
        yield ("sort", rows, VOCABULARY, milliseconds([partial(torch.sort, one) for one in logits]))
