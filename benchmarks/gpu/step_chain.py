"""Whole steps of a Llama out of the kernels that ``ceilings`` times, captured in one graph, with random weights.

Every layer runs norm, QKV, rotation and cache write, attention, output, norm, gate and up, activation, down, as an
engine fuses them: norms add the residual, and in FP8 norms and activations round what they write. Scales of tensors
are one. Attention is cuDNN's over a prompt and the fastest way of ``generation_kernel`` over a cache. Then come the
last norm, the head in bf16 over one row a sequence, and the greedy choice. Every layer has weights and a cache of its
own. Where not all layers fit the card, fewer run, and a line through two numbers of layers gives the time of all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from trtllm_kit.doctor_worker.calibrate import small_kernels as kernels
from trtllm_kit.doctor_worker.calibrate.dense import LLAMA, VOCABULARY
from trtllm_kit.doctor_worker.calibrate.device_clock import E4M3, captured, replayed_milliseconds
from trtllm_kit.doctor_worker.calibrate.generation_kernel import Split, Way, attend, fastest

HEADS = {"steps": ("model", "dtype", "kind", "sequences", "tokens", "layers_run", "ms_run", "layers", "ms")}
BF16 = torch.bfloat16
LAYERS = {"8b": 32, "70b": 80}
FEW = {"8b": 32, "70b": 24}
"""Layers that run, and a quarter of them; the time of all is on the line through both."""
SPREAD = 64
"""What e4m3 weights are multiplied by, as a scale of a tensor does, so that they are no subnormal numbers."""
CONTEXTS = (1024, 8192)


@dataclass(frozen=True)
class Shape:
    """One of the models on one card."""

    name: str
    dtype: torch.dtype
    device: str

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Hidden, intermediate, heads, KV heads."""
        return LLAMA[self.name]


class Layer:
    """The weights of a layer and the steps through it."""

    def __init__(self, shape: Shape) -> None:
        hidden, wide, heads, kv_heads = shape.sizes
        qkv = (heads + 2 * kv_heads) * 128
        self.shape = shape
        self.norms = [torch.ones(hidden, device=shape.device, dtype=BF16) for _ in range(2)]
        sizes = ((qkv, hidden), (hidden, heads * 128), (2 * wide, hidden), (hidden, wide))
        self.qkv, self.out, self.up, self.down = (weight(shape, *size) for size in sizes)

    def product(self, rows: Tensor, weight_of: Tensor) -> Tensor:
        """Multiply rows by a weight, into bf16."""
        if self.shape.dtype == BF16:
            return rows @ weight_of.t()
        scales = scales_of(self.shape.device)
        return torch._scaled_mm(rows, weight_of.t(), *scales, out_dtype=BF16, use_fast_accum=True)

    def run(self, x: Tensor, residual: Tensor, attention: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what the layer adds to ``residual``, which takes ``x`` in place."""
        empty = partial(torch.empty, device=x.device, dtype=self.shape.dtype)
        rows, hidden = x.shape
        attended = attention(self.product(kernels.add_norm(x, residual, self.norms[0], empty(rows, hidden)), self.qkv))
        attended = attended.reshape(rows, -1)
        if self.shape.dtype != BF16:
            attended = kernels.to_fp8(attended, empty(attended.shape))
        x = self.product(attended, self.out)
        gate = self.product(kernels.add_norm(x, residual, self.norms[1], empty(rows, hidden)), self.up)
        return self.product(kernels.silu_mul(gate, empty(rows, gate.shape[1] // 2)), self.down)


def weight(shape: Shape, outputs: int, inputs: int) -> Tensor:
    """Return random weights of deviation 0.02, in e4m3 over their scale."""
    made = torch.randn(outputs, inputs, device=shape.device, dtype=BF16) * 0.02
    return made if shape.dtype == BF16 else (made * SPREAD).to(shape.dtype)


@lru_cache
def scales_of(device: str) -> tuple[Tensor, Tensor]:
    """Return the scales of inputs and of weights."""
    return torch.ones((), device=device), torch.full((), 1 / SPREAD, device=device)


class Model:
    """Layers, and the head that follows them."""

    def __init__(self, shape: Shape, layers: int) -> None:
        hidden = shape.sizes[0]
        self.shape, self.layers = shape, [Layer(shape) for _ in range(layers)]
        self.norm = torch.ones(hidden, device=shape.device, dtype=BF16)
        self.head = weight(Shape(shape.name, BF16, shape.device), VOCABULARY, hidden)

    def step(self, x: Tensor, attentions: list[Callable[[Tensor], Tensor]], last: Tensor) -> Tensor:
        """Return the next token after each of the rows ``last``."""
        residual = torch.zeros_like(x)
        for layer, attention in zip(self.layers, attentions, strict=True):
            x = layer.run(x, residual, attention)
        x = kernels.add_norm(x[last], residual[last], self.norm, torch.empty_like(x[last]))
        return (x @ self.head.t()).argmax(-1)


def random_cache(shape: Shape, sequences: int, context: int) -> Tensor:
    """Return keys and values (2, sequences, KV heads, tokens, 128)."""
    cache = torch.empty(2, sequences, shape.sizes[3], context, 128, device=shape.device, dtype=shape.dtype)
    for one in cache.flatten(0, 1):
        one.copy_(torch.randn(one.shape, device=shape.device, dtype=BF16))
    return cache


@lru_cache
def way_of(shape: Shape, sequences: int, context: int) -> Way:
    """Return the fastest way over as many caches as no second-level cache holds."""
    one = random_cache(shape, sequences, context)
    more = min(16, (200 << 20) // one.nbytes)
    query = torch.randn(sequences, shape.sizes[2], 128, device=shape.device, dtype=BF16)
    return fastest(query, [one, *(random_cache(shape, sequences, context) for _ in range(more))])[0]


def generating(shape: Shape, sequences: int, context: int, cache: Tensor, angles: Tensor) -> Callable[[Tensor], Tensor]:
    """Return attention of one token each of ``sequences`` over ``context`` cached ones, the token's own among them."""
    heads = shape.sizes[2]
    way = way_of(shape, sequences, context)
    room = Split.of(sequences * heads, context, way.splits, shape.device)

    def attention(qkv: Tensor) -> Tensor:
        query = torch.empty(sequences, heads, 128, device=qkv.device, dtype=BF16)
        kernels.rotate(qkv, angles, query, cache, own_cache=True, first=context - 1)
        return attend(query, cache[0], cache[1], torch.empty_like(query), room, way.tile)

    return attention


def prompting(shape: Shape, tokens: int, angles: Tensor) -> Callable[[Tensor], Tensor]:
    """Return attention of a prompt's tokens over themselves, which also writes their keys and values."""
    heads, kv_heads = shape.sizes[2:]
    cache = torch.empty(2, 1, kv_heads, tokens, 128, device=shape.device, dtype=shape.dtype)

    def attention(qkv: Tensor) -> Tensor:
        query = torch.empty(tokens, heads, 128, device=qkv.device, dtype=BF16)
        kernels.rotate(qkv, angles, query, cache, own_cache=False, first=0)
        parts = qkv.view(1, tokens, heads + 2 * kv_heads, 128).transpose(1, 2)
        key, value = parts[:, heads : heads + kv_heads], parts[:, heads + kv_heads :]
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]):
            out = scaled_dot_product_attention(query[None].transpose(1, 2), key, value, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2)

    return attention


def measured(device: str, small: bool) -> Iterator[tuple[Any, ...]]:
    """Time generation steps of 1, 8 and 64 sequences and prompts of 1k, 4k and 32k tokens."""
    if device == "cpu":
        return
    check(device)
    names = ("8b",) if small else tuple(LAYERS)
    for name in names:
        for dtype in (BF16, E4M3):
            shape = Shape(name, dtype, device)
            model = Model(shape, 4 if small else FEW[name])
            for kind, sequences, tokens in works(small):
                yield _scaled(model, kind, sequences, tokens)
            del model
            torch.cuda.empty_cache()


def works(small: bool) -> list[tuple[str, int, int]]:
    """Return kinds of step, sequences and tokens of each."""
    if small:
        return [("generation", 8, 1024), ("prompt", 1, 1024)]
    generation = [("generation", sequences, tokens) for tokens in CONTEXTS for sequences in (1, 8, 64)]
    return [*generation, *(("prompt", 1, tokens) for tokens in (1024, 4096, 32768))]


def _scaled(model: Model, kind: str, sequences: int, tokens: int) -> tuple[Any, ...]:
    """Time two numbers of layers, and return the row with the time of all of them."""
    name, most, layers = model.shape.name, len(model.layers), LAYERS[model.shape.name]
    few = most // 4
    one = _step(model, kind, (sequences, tokens), few)
    two = _step(model, kind, (sequences, tokens), most)
    whole = two + (two - one) / (most - few) * (layers - most)
    return (name, "bf16" if model.shape.dtype == BF16 else "fp8", kind, sequences, tokens, most, two, layers, whole)


def _step(model: Model, kind: str, size: tuple[int, int], layers: int) -> float:
    """Return the median milliseconds of a step through the first ``layers``."""
    sequences, tokens = size
    part = copy.copy(model)
    part.layers = model.layers[:layers]
    rows = sequences if kind == "generation" else tokens
    x = torch.randn(rows, model.shape.sizes[0], device=model.shape.device, dtype=BF16)
    angles = torch.rand(rows, 64, device=x.device)
    caches: list[Tensor] = []
    if kind == "generation":
        caches = [random_cache(model.shape, sequences, tokens) for _ in range(layers)]
        attentions = [generating(model.shape, sequences, tokens, cache, angles) for cache in caches]
        last = torch.arange(sequences, device=x.device)
    else:
        attentions = [prompting(model.shape, tokens, angles) for _ in range(layers)]
        last = torch.tensor([tokens - 1], device=x.device)
    call = partial(part.step, x, attentions, last)
    call()
    ms = replayed_milliseconds(captured([call]), 3 if rows > 8192 else 9)
    caches, attentions = [], []
    torch.cuda.empty_cache()
    return ms


@torch.no_grad()
def check(device: str) -> None:
    """Compare a layer over a prompt, and attention over a cache, with plain torch in float32; raises AssertionError."""
    for dtype in (BF16, E4M3):
        shape = Shape("8b", dtype, device)
        hidden, _, heads, kv_heads = shape.sizes
        layer, x = Layer(shape), torch.randn(300, hidden, device=device, dtype=BF16)
        residual = torch.zeros_like(x)
        angles = torch.rand(300, 64, device=device)
        got = layer.run(x.clone(), residual, prompting(shape, 300, angles)).float()
        error = float((got - plain(layer, x.float(), angles)).norm() / got.norm())
        assert error < (2e-2 if dtype == BF16 else 1e-1), f"a layer is off by {error:.1e}"
        cache = torch.randn(2, 3, kv_heads, 500, 128, device=device, dtype=BF16).to(dtype)
        qkv = torch.randn(3, (heads + 2 * kv_heads) * 128, device=device, dtype=BF16)
        angles = torch.rand(3, 64, device=device)
        out = generating(shape, 3, 500, cache, angles)(qkv.clone()).float()
        query = turned(qkv.float().view(3, -1, 128)[:, :heads], angles)
        true = scaled_dot_product_attention(query[:, :, None], *cache.float(), enable_gqa=True)[:, :, 0]
        error = float((out - true).norm() / true.norm())
        assert error < 2e-2, f"attention over a cache is off by {error:.1e}"
        key = turned(qkv.float().view(3, -1, 128)[:, heads : heads + kv_heads], angles)
        error = float((cache[0, :, :, -1].float() - key).norm() / key.norm())
        assert error < 5e-2, f"what the cache holds is off by {error:.1e}"


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate (rows, heads, 128) by (rows, 64) angles."""
    low, high = x.chunk(2, dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def plain(layer: Layer, x: Tensor, angles: Tensor) -> Tensor:
    """Return what a layer adds to its residual ``x``, in float32."""
    _, _, heads, kv_heads = layer.shape.sizes
    rows, spread = x.shape[0], 1 if layer.shape.dtype == BF16 else SPREAD

    def norm(values: Tensor) -> Tensor:
        return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + 1e-5)

    qkv = (norm(x) @ layer.qkv.float().t() / spread).view(rows, heads + 2 * kv_heads, 128)
    query, key, value = qkv.split((heads, kv_heads, kv_heads), dim=1)
    parts = (turned(query, angles), turned(key, angles), value)
    mixed = scaled_dot_product_attention(*(one.transpose(0, 1)[None] for one in parts), is_causal=True, enable_gqa=True)
    x = x + mixed[0].transpose(0, 1).reshape(rows, -1) @ layer.out.float().t() / spread
    gate, up = (norm(x) @ layer.up.float().t() / spread).chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up) @ layer.down.float().t() / spread
