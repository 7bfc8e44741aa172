"""Attention of one card: of prompts, of later chunks of them, and of single tokens over a cache."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .device_clock import E4M3, Pool, milliseconds

BF16 = torch.bfloat16
Row = tuple[Any, ...]

HEADS = {
    "context": ("kernel", "sequences", "heads", "kv_heads", "width", "new", "past", "ms"),
    "generation": ("kernel", "kv_dtype", "sequences", "heads", "kv_heads", "width", "context", "splits", "ms"),
}
PER_RANK = ((64, 8), (32, 8), (16, 2), (8, 1), (4, 1))
"""Query and KV heads of a rank: 70B on 1, 8B on 1, 70B on 4 and 8, 8B on 8."""
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
FLASH_UP_TO = 8192
"""Tokens up to which both kernels are timed; above, the faster of the two at this length."""


def context(pool: Pool, small: bool) -> Iterator[Row]:
    """Time causal attention of prompts, and of a chunk over what is cached of its prompt, which is not causal here."""
    heads = PER_RANK[-1:] if small else PER_RANK
    for one in heads:
        for tokens in (128, 256) if small else (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072):
            yield from _timed(pool, (1, *one), (tokens, 0), 128)
    if small:
        return
    for sequences, tokens in ((8, 512), (32, 512), (8, 1024), (8, 2048)):
        yield from _timed(pool, (sequences, 64, 8), (tokens, 0), 128)
    for new, past in ((2048, 6144), (2048, 30720), (8192, 24576), (8192, 122880), (512, 32256)):
        for one in ((64, 8), (8, 1)):
            yield from _timed(pool, (1, *one), (new, past), 128)
    for heads_of_mla in (128, 16):
        for tokens in (1024, 4096, 16384):
            yield from _timed(pool, (1, heads_of_mla, heads_of_mla), (tokens, 0), 192)


def _timed(pool: Pool, who: tuple[int, int, int], length: tuple[int, int], width: int) -> Iterator[Row]:
    kernels = tuple(BACKENDS) if sum(length) <= FLASH_UP_TO else ("cudnn",)
    for kernel in kernels:
        ms = prompt(pool, kernel, who, length, width)
        if math.isnan(ms) and kernels == ("cudnn",):
            kernel = "flash"
            ms = prompt(pool, kernel, who, length, width)
        yield (kernel, *who, width, *length, ms)


def prompt(pool: Pool, kernel: str, who: tuple[int, int, int], length: tuple[int, int], width: int) -> float:
    """Return milliseconds of attention of ``length`` (new, cached) tokens; nan where the kernel has none such."""
    (sequences, heads, kv_heads), (new, past) = who, length
    device = pool.device
    q = torch.randn(sequences, new, heads, width, device=device, dtype=BF16).transpose(1, 2)
    k = torch.randn(sequences, new + past, kv_heads, width, device=device, dtype=BF16).transpose(1, 2)
    v = torch.randn(sequences, new + past, kv_heads, 128, device=device, dtype=BF16).transpose(1, 2)
    named = {"is_causal": past == 0, "enable_gqa": heads != kv_heads}
    if device == "cpu":
        scaled_dot_product_attention(q, k, v, **named)
        return math.nan
    try:
        with sdpa_kernel(BACKENDS[kernel]):
            return milliseconds(
                [partial(scaled_dot_product_attention, q, k, v, **named)], rounds=5 if sum(length) <= 32768 else 2
            )
    except RuntimeError as error:
        print(f"  {kernel} {who} {length} {width}: {str(error).splitlines()[0][:120]}", file=sys.stderr, flush=True)  # noqa: T201  # a program of its own
        return math.nan


def generation(pool: Pool, small: bool) -> Iterator[Row]:
    """Time one new token of each of many sequences over its cache, in bf16 and e4m3, and over MLA's latents."""
    from . import generation_kernel  # which needs triton

    if pool.device != "cpu":
        generation_kernel.check(pool.device)
    lengths = (256, 1024) if small else (256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
    batches = (1, 4) if small else (1, 2, 4, 8, 16, 32, 64, 128, 256)
    for heads in PER_RANK[-2:-1] if small else PER_RANK[:-1]:
        for batch in batches if heads in {PER_RANK[0], PER_RANK[3]} else batches[::3]:
            for tokens in lengths:
                if batch * tokens * heads[1] * 128 <= pool.one((1,)).untyped_storage().nbytes() // 4:
                    yield from _generated(pool, (batch, *heads), tokens)
    for heads_of_mla in (128, 16):
        for batch in batches:
            for tokens in lengths:
                if batch * tokens * 576 <= pool.one((1,)).untyped_storage().nbytes() // 2:
                    yield best_latent(pool, (batch, heads_of_mla), tokens)


def _generated(pool: Pool, who: tuple[int, int, int], tokens: int) -> Iterator[Row]:
    batch, heads, kv_heads = who
    head = (batch, heads, kv_heads, 128, tokens)
    for dtype in (BF16, E4M3):
        name = "e4m3" if dtype == E4M3 else "bf16"
        splits, ms = best_split(pool, who, tokens, dtype)
        yield ("split", name, *head, splits, ms)
    if pool.device != "cpu" and batch in {1, 8, 64}:
        for kernel in BACKENDS:
            yield (kernel, "bf16", *head, 0, packed(pool, kernel, who, tokens))


def best_split(pool: Pool, who: tuple[int, int, int], tokens: int, dtype: torch.dtype) -> tuple[int, float]:
    """Return the fastest number of parts and its milliseconds."""
    from . import generation_kernel

    batch, heads, kv_heads = who
    caches = pool.sets((2, batch, kv_heads, tokens, 128), dtype)
    way, ms = generation_kernel.fastest(torch.randn(batch, heads, 128, device=pool.device, dtype=BF16), caches)
    return way.splits, ms


def best_latent(pool: Pool, who: tuple[int, int], tokens: int) -> Row:
    """Return the row of MLA's attention at the fastest number of parts."""
    from .generation_kernel import Split, attend_latent, splits_of

    batch, heads = who
    q = torch.randn(batch, heads, 576, device=pool.device, dtype=BF16)
    out, timed = torch.empty(batch, heads, 512, device=pool.device, dtype=BF16), []
    for splits in splits_of(batch * max(1, heads // 64), tokens):
        room = Split.of(batch * heads, tokens, splits, pool.device, 512)
        calls = [partial(attend_latent, q, cache, out, room) for cache in pool.sets((batch, tokens, 576), BF16)]
        timed.append((milliseconds(calls, rounds=3, target_ms=3), room.splits))
    ms, splits = min(timed)
    return ("latent", "bf16", batch, heads, 1, 576, tokens, splits, ms)


def packed(pool: Pool, kernel: str, who: tuple[int, int, int], tokens: int) -> float:
    """Return milliseconds of torch's own kernel, the query heads of a KV head as if they were tokens."""
    batch, heads, kv_heads = who
    q = torch.randn(batch, kv_heads, heads // kv_heads, 128, device=pool.device, dtype=BF16)
    caches = pool.sets((2, batch, kv_heads, tokens, 128), BF16)
    try:
        with sdpa_kernel(BACKENDS[kernel]):
            calls = [partial(scaled_dot_product_attention, q, *cache) for cache in caches]
            return milliseconds(calls, rounds=3, target_ms=3)
    except RuntimeError as error:
        print(f"  {kernel} {who} {tokens}: {str(error).splitlines()[0][:120]}", file=sys.stderr, flush=True)  # noqa: T201  # a program of its own
        return math.nan
