"""Attention of one new token of each sequence over its cached ones, query heads of a KV head together.

Two Triton kernels: parts of the context in parallel, then their merge. Keys and values lie (sequences, KV heads,
tokens, 128) in bf16 or e4m3. The latent kernel is MLA's: keys are (tokens, 512 + 64) and values their first 512.
"""

# ruff: noqa: N803  # constants of a kernel are in capitals
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from .device_clock import milliseconds

TOKENS = 128
"""Parts are whole multiples of it."""


@triton.jit(do_not_specialize=["splits"])
def _part(
    q,
    k,
    v,
    out,
    top,
    total,
    tokens,
    part,
    splits,
    scale,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
    HALF: tl.constexpr,
):  # type: ignore[no-untyped-def]
    which, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, wide, at = tl.arange(0, ROWS), tl.arange(0, 128), tl.arange(0, N)
    query = tl.load(q + (which * GROUP + row[:, None]) * 128 + wide[None, :], mask=row[:, None] < GROUP, other=0.0)
    kind = tl.float16 if HALF else tl.bfloat16
    query = query.to(kind)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    sum_of = tl.zeros([ROWS, 128], tl.float32)
    first = split * part
    last = tl.minimum(first + part, tokens)
    keys, values = k + which * tokens * 128, v + which * tokens * 128
    for start in range(first, last, N):
        inside = (start + at) < last
        cell = (start + at)[:, None] * 128 + wide[None, :]
        key = tl.load(keys + cell, mask=inside[:, None], other=0.0).to(kind)
        value = tl.load(values + cell, mask=inside[:, None], other=0.0).to(kind)
        score = tl.where(inside[None, :], tl.dot(query, tl.trans(key)) * scale, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, 1))
        fade, share = tl.exp2(largest - higher), tl.exp2(score - higher[:, None])
        weight = weight * fade + tl.sum(share, 1)
        sum_of = tl.dot(share.to(kind), value, sum_of * fade[:, None])
        largest = higher
    to = (which * GROUP + row) * splits + split
    tl.store(out + to[:, None] * 128 + wide[None, :], sum_of, mask=row[:, None] < GROUP)
    tl.store(top + to, largest, mask=row < GROUP)
    tl.store(total + to, weight, mask=row < GROUP)


@triton.jit(do_not_specialize=["splits"])
def _latent_part(
    q, k, out, top, total, tokens, part, splits, scale, HEADS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr
):  # type: ignore[no-untyped-def]
    groups = HEADS // ROWS
    sequence = (tl.program_id(0) // groups).to(tl.int64)
    row = (tl.program_id(0) % groups) * ROWS + tl.arange(0, ROWS)
    split, at = tl.program_id(1), tl.arange(0, N)
    wide, turned = tl.arange(0, 512), 512 + tl.arange(0, 64)
    queries = q + (sequence * HEADS + row[:, None]) * 576
    query, query_turned = tl.load(queries + wide[None, :]), tl.load(queries + turned[None, :])
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    sum_of = tl.zeros([ROWS, 512], tl.float32)
    first = split * part
    last = tl.minimum(first + part, tokens)
    keys = k + sequence * tokens * 576
    for start in range(first, last, N):
        inside = (start + at) < last
        cell = keys + (start + at)[:, None] * 576
        key = tl.load(cell + wide[None, :], mask=inside[:, None], other=0.0)
        key_turned = tl.load(cell + turned[None, :], mask=inside[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key)) + tl.dot(query_turned, tl.trans(key_turned))
        score = tl.where(inside[None, :], score * scale, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, 1))
        fade, share = tl.exp2(largest - higher), tl.exp2(score - higher[:, None])
        weight = weight * fade + tl.sum(share, 1)
        sum_of = tl.dot(share.to(tl.bfloat16), key, sum_of * fade[:, None])
        largest = higher
    to = (sequence * HEADS + row) * splits + split
    tl.store(out + to[:, None] * 512 + wide[None, :], sum_of)
    tl.store(top + to, largest)
    tl.store(total + to, weight)


@triton.jit(do_not_specialize=["splits"])
def _merge(parts, top, total, out, splits, WIDE: tl.constexpr, MOST: tl.constexpr):  # type: ignore[no-untyped-def]
    which = tl.program_id(0).to(tl.int64)
    split, wide = tl.arange(0, MOST), tl.arange(0, WIDE)
    inside = split < splits
    tops = tl.load(top + which * splits + split, mask=inside, other=float("-inf"))
    share = tl.exp2(tops - tl.max(tops, 0))
    weight = tl.sum(share * tl.load(total + which * splits + split, mask=inside, other=0.0), 0)
    cell = (which * splits + split)[:, None] * WIDE + wide[None, :]
    sum_of = tl.sum(share[:, None] * tl.load(parts + cell, mask=inside[:, None], other=0.0), 0)
    tl.store(out + which * WIDE + wide, (sum_of / weight).to(out.dtype.element_ty))


@dataclass(frozen=True)
class Split:
    """The room that parts of the context need, made once for a shape: ``rows`` are sequences x query heads."""

    splits: int
    part: int
    parts: Tensor
    top: Tensor
    total: Tensor

    @classmethod
    def of(cls, rows: int, tokens: int, splits: int, device: str | torch.device, wide: int = 128) -> Split:
        """Cut ``tokens`` into about ``splits`` parts of whole blocks."""
        part = math.ceil(math.ceil(tokens / splits) / TOKENS) * TOKENS
        splits = math.ceil(tokens / part)
        made = [torch.empty(rows * splits * size, device=device, dtype=torch.float32) for size in (wide, 1, 1)]
        return cls(splits, part, *made)


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, room: Split, tile: tuple[int, int] = (64, 4)) -> Tensor:
    """Write attention of ``q`` (sequences, heads, 128) over ``k`` and ``v`` (sequences, KV heads, tokens, 128).

    ``tile`` is the tokens that a program reads at a time, and its warps. A cache in e4m3 is multiplied as float16,
    which holds its values and which the card turns them into in one instruction.
    """
    sequences, kv_heads, tokens, _ = k.shape
    group = q.shape[1] // kv_heads
    scale = 1.4426950408889634 / math.sqrt(128)
    _part[(sequences * kv_heads, room.splits)](
        q, k, v, room.parts, room.top, room.total, tokens, room.part, room.splits, scale,
        GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), N=tile[0], HALF=k.dtype == torch.float8_e4m3fn,
        num_warps=tile[1], num_stages=3,
    )  # fmt: skip
    merge(room, out, 128)
    return out


def attend_latent(q: Tensor, k: Tensor, out: Tensor, room: Split) -> Tensor:
    """Write attention of ``q`` (sequences, heads, 576) over latents ``k`` (sequences, tokens, 576); out is 512 wide."""
    sequences, heads, _ = q.shape
    rows = min(heads, 64)
    _latent_part[(sequences * heads // rows, room.splits)](
        q, k, room.parts, room.top, room.total, k.shape[1], room.part, room.splits, 1.4426950408889634 / math.sqrt(192),
        HEADS=heads, ROWS=rows, N=32 if rows > 16 else 64, num_warps=8 if rows > 16 else 4, num_stages=2,
    )  # fmt: skip
    merge(room, out, 512)
    return out


def merge(room: Split, out: Tensor, wide: int) -> None:
    """Add the parts up."""
    rows = out.numel() // wide
    most = triton.next_power_of_2(room.splits)
    _merge[(rows,)](room.parts, room.top, room.total, out, room.splits, WIDE=wide, MOST=most, num_warps=4)


@dataclass(frozen=True)
class Way:
    """How a program works: parts of the context, tokens read at a time, and warps."""

    splits: int
    tile: tuple[int, int]


TILES = {torch.bfloat16: ((64, 4), (128, 8)), torch.float8_e4m3fn: ((64, 4), (128, 4), (128, 8))}
"""Tokens and warps of a program that are tried."""


def splits_of(programs: int, tokens: int) -> list[int]:
    """Return numbers of parts that fill 132 multiprocessors once, twice and four times, at least 128 tokens each."""
    most = min(256, max(1, tokens // 128))
    wanted = (1, 2, 3) if programs >= 132 else (132 * times // programs for times in (1, 2, 4))
    return sorted({min(most, one) for one in wanted})


def fastest(q: Tensor, caches: Sequence[Tensor]) -> tuple[Way, float]:
    """Return the way of ``attend`` that takes least over caches (2, sequences, KV heads, tokens, 128), and its ms."""
    sequences, kv_heads, tokens = caches[0].shape[1:4]
    out, timed = torch.empty_like(q), dict[Way, float]()
    for splits in splits_of(sequences * kv_heads, tokens):
        room = Split.of(q.shape[0] * q.shape[1], tokens, splits, q.device)
        for tile in TILES[caches[0].dtype]:
            calls = [partial(attend, q, cache[0], cache[1], out, room, tile) for cache in caches]
            timed[Way(room.splits, tile)] = milliseconds(calls, rounds=3, target_ms=2)
    way = min(timed, key=lambda one: timed[one])
    return way, timed[way]


def check(device: str) -> None:
    """Compare both kernels with torch in float64, in bf16 and e4m3; raises AssertionError."""
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        q = torch.randn(3, 32, 128, device=device, dtype=torch.bfloat16)
        k, v = torch.randn(2, 3, 8, 1000, 128, device=device).to(dtype)
        out = attend(q, k, v, torch.full_like(q, math.nan), Split.of(96, 1000, 5, device))
        score = q.double().view(3, 8, 4, 128) @ k.double().transpose(-1, -2) / math.sqrt(128)
        _near(out.view(3, 8, 4, 128), score.softmax(-1) @ v.double())
    for heads in (16, 128):
        q, k = (torch.randn(3, size, 576, device=device, dtype=torch.bfloat16) for size in (heads, 1000))
        out = torch.full((3, heads, 512), math.nan, device=device, dtype=torch.bfloat16)
        attend_latent(q, k, out, Split.of(3 * heads, 1000, 5, device, 512))
        score = q.double() @ k.double().transpose(-1, -2) / math.sqrt(192)
        _near(out, score.softmax(-1) @ k[..., :512].double())


def _near(out: Tensor, true: Tensor) -> None:
    error = float((out.double() - true).norm() / true.norm())
    assert error < 1e-2, f"attention is off by {error:.1e}"
