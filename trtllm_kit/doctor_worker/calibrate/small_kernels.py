"""Triton kernels of what lies between matrix products: norms, activations, rounding to e4m3, rotation of keys."""

# ruff: noqa: N803  # constants of a kernel are in capitals
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

E4M3 = torch.float8_e4m3fn


@triton.jit
def _add_norm(x, residual, weight, out, width, scale, BLOCK: tl.constexpr, ROUND: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(residual + row + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + row + at, value.to(tl.bfloat16), mask=inside)
    value *= tl.rsqrt(tl.sum(value * value) / width + 1e-5)
    value *= tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    if ROUND:
        value = tl.minimum(tl.maximum(value * scale, -448.0), 448.0)
    tl.store(out + row + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _silu_mul(x, out, width, scale, BLOCK: tl.constexpr, ROUND: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    gate = tl.load(x + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
    value = gate * tl.sigmoid(gate) * up
    if ROUND:
        value = tl.minimum(tl.maximum(value * scale, -448.0), 448.0)
    tl.store(out + row * width + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _to_fp8(x, out, count, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32) * scale
    tl.store(out + at, tl.minimum(tl.maximum(value, -448.0), 448.0).to(out.dtype.element_ty), mask=at < count)


@triton.jit
def _rotate(qkv, angles, query, keys, values, heads, kv_heads, room, first, OWN: tl.constexpr):  # type: ignore[no-untyped-def]
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    base = qkv + (row * (heads + 2 * kv_heads) + head) * 128
    half = tl.arange(0, 64)
    low, high = tl.load(base + half).to(tl.float32), tl.load(base + 64 + half).to(tl.float32)
    turn = tl.load(angles + row * 64 + half)
    turned_low, turned_high = low * tl.cos(turn) - high * tl.sin(turn), high * tl.cos(turn) + low * tl.sin(turn)
    kept = (head - heads) % kv_heads
    cell = ((row * kv_heads + kept) * room + first) * 128 if OWN else (kept.to(tl.int64) * room + first + row) * 128
    if head < heads:
        to = query + (row * heads + head) * 128
        tl.store(to + half, turned_low.to(query.dtype.element_ty))
        tl.store(to + 64 + half, turned_high.to(query.dtype.element_ty))
    elif head < heads + kv_heads:
        tl.store(base + half, turned_low.to(qkv.dtype.element_ty))
        tl.store(base + 64 + half, turned_high.to(qkv.dtype.element_ty))
        tl.store(keys + cell + half, turned_low.to(keys.dtype.element_ty))
        tl.store(keys + cell + 64 + half, turned_high.to(keys.dtype.element_ty))
    else:
        tl.store(values + cell + half, low.to(values.dtype.element_ty))
        tl.store(values + cell + 64 + half, high.to(values.dtype.element_ty))


def add_norm(x: Tensor, residual: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Add ``x`` to ``residual`` in place and write the RMS norm of the sum, in e4m3 where ``out`` is."""
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    warps = 4 if block <= 4096 else 8 if block <= 8192 else 16
    _add_norm[(rows,)](x, residual, weight, out, width, 1.0, BLOCK=block, ROUND=out.dtype == E4M3, num_warps=warps)
    return out


def silu_mul(x: Tensor, out: Tensor) -> Tensor:
    """Write ``silu(gate) * up`` of rows (gate, up)."""
    rows, width = out.shape
    _silu_mul[(rows, triton.cdiv(width, 1024))](x, out, width, 1.0, BLOCK=1024, ROUND=out.dtype == E4M3)
    return out


def to_fp8(x: Tensor, out: Tensor) -> Tensor:
    """Round to e4m3."""
    _to_fp8[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), 1.0, BLOCK=2048)
    return out


def rotate(qkv: Tensor, angles: Tensor, query: Tensor, cache: Tensor, own_cache: bool, first: int) -> None:
    """Rotate queries and keys of rows (query, key and value heads of 128), and write keys and values to the cache.

    ``cache`` is (2, sequences, KV heads, tokens, 128); with ``own_cache`` each row is of a sequence of its own, at
    position ``first``, and else rows follow one another from there. Rotated queries go to ``query``; keys are turned
    in place too, as attention over the prompt reads them there.
    """
    rows, heads, kv_heads = qkv.shape[0], query.shape[1], cache.shape[2]
    _rotate[(rows, heads + 2 * kv_heads)](
        qkv, angles, query, cache[0], cache[1], heads, kv_heads, cache.shape[3], first, OWN=own_cache, num_warps=1
    )


def run(name: str, both: Tensor) -> Tensor:
    """Run one of them on the halves of rows (rows, 2 x width)."""
    rows, width = both.shape[0], both.shape[1] // 2
    one, two = both.view(2, rows, width)
    out = torch.empty(rows, width, device=both.device, dtype=E4M3 if name.endswith("fp8") else torch.bfloat16)
    if name.startswith("add_norm"):
        return add_norm(one, two, both.view(-1)[:width], out)
    if name.startswith("silu_mul"):
        return silu_mul(both, out)
    return to_fp8(one, out)


def check(device: str) -> None:
    """Compare each with torch in float32; raises AssertionError."""
    both = torch.randn(37, 2 * 4096, device=device, dtype=torch.bfloat16)
    one, two = both.view(2, 37, 4096).float()
    summed = one + two
    norm = summed * torch.rsqrt(summed.square().mean(-1, keepdim=True) + 1e-5)
    gate, up = both.float().chunk(2, dim=1)
    weight = both.view(-1)[:4096].float()
    true = {"silu_mul": torch.nn.functional.silu(gate) * up, "to_fp8": one, "add_norm": norm * weight}
    for name in ("silu_mul", "silu_mul_fp8", "to_fp8", "add_norm", "add_norm_fp8"):
        wanted = true[name.removesuffix("_fp8") if name != "to_fp8" else name]
        error = (run(name, both.clone()).float() - wanted).norm() / wanted.norm()
        assert error < (4e-2 if name.endswith("fp8") else 5e-3), f"{name} is off by {error:.1e}"
