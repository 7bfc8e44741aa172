"""Constants of a card out of what ``doctor_worker.calibrate`` measured of it. Pure.

A product takes ``overhead + (memory^p + arithmetic^p)^(1/p)``: its bytes over a share of the bandwidth, and its
operations over a share of the peak. Attention and small operations take an overhead and one rate. Constants make the
mean of |log(fitted / measured)| small, by steps along one logarithm at a time. Bounds are the constants of the fastest
and the slowest tenth of what they are fitted on, relative to the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.light import dataclass
from trtllm_kit.spec.hardware import Gpu, Reached

Array = NDArray[np.float64]
Model = Callable[[Array], Array]
Row = Mapping[str, Any]
MOVED = {"add_norm": 8, "add_norm_fp8": 7, "silu_mul": 6, "silu_mul_fp8": 5, "to_fp8": 3}
"""Bytes that a small operation reads and writes for each of its row's outputs."""
WIDTH = {"bf16": 2, "e4m3": 1, "fp8": 1, "fp8_rows": 1, "fp8_blocks": 1}
"""Bytes of an element."""
PRODUCT = {
    "bf16": ("product_share_16", "bf16"),
    "fp8": ("product_share_8", "fp8"),
    "fp8_blocks": ("product_share_8_block", "fp8"),
}
"""Of a format that was measured, the constant that it gives and the peak that the share is of."""
LEAST_LINK_BYTES = 8 << 20
FEW, FEW_SIZES = 8, 4
"""Fewer points, and fewer sizes of a message, give no constant."""


@dataclass(frozen=True)
class Fit:
    """Constants of one kind of work, and how far they are from what was measured."""

    constants: Array
    mean: float
    """Mean of the relative errors."""
    ninety: float
    """90 % of them are below."""
    points: int
    low: float
    """The slowest tenth takes so many times as long as the fit says; ``high`` is the fastest."""
    high: float


def fitted(model: Model, measured: Array, start: Sequence[float]) -> Array:
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
    found: Array = np.exp(point)
    return found


def fit(model: Model, measured: Array, start: Sequence[float]) -> Fit:
    """Return the constants with their errors."""
    constants = fitted(model, measured, start)
    ratio = measured / model(constants)
    apart = np.abs(1 / ratio - 1)
    low, high = np.quantile(ratio, 0.9), np.quantile(ratio, 0.1)
    return Fit(constants, float(apart.mean()), float(np.quantile(apart, 0.9)), len(measured), float(low), float(high))


def product_model(moved: Array, operations: Array, bandwidth: float, peak: float) -> Model:
    """Return the seconds of products by (share of bandwidth, share of peak, p, overhead in µs)."""

    def model(x: Array) -> Array:
        memory, arithmetic = moved / (bandwidth * x[0]), operations / (peak * x[1])
        power = np.clip(x[2], 0.5, 30.0)
        most = np.maximum(memory, arithmetic)
        found: Array = x[3] * 1e-6 + most * ((memory / most) ** power + (arithmetic / most) ** power) ** (1 / power)
        return found

    return model


def rate_model(work: Array, rate: float) -> Model:
    """Return the seconds of work at a share of a rate, by (share, overhead in µs)."""

    def model(x: Array) -> Array:
        found: Array = x[1] * 1e-6 + work / (rate * x[0])
        return found

    return model


def rows_of(document: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the rows of a part as objects, without those that torch had no kernel for."""
    found = document["parts"].get(part, {"columns": [], "rows": []})
    named = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    return [row for row in named if None not in row.values()]


def constants_of(document: Mapping[str, Any], gpu: Gpu) -> dict[str, Reached]:
    """Return what was measured as constants of ``spec.ceilings``, shares of the figures of ``gpu``.

    A kind of work that was not measured, or in too few points, gives none.
    """
    told = document["machine"]
    source = f"measured: trtkit doctor calibrate, {told['card']}, torch {told['torch']}, {told['date']}"
    found = dict(_products(document, gpu)) | dict(_streams(document, gpu)) | dict(_links(document, gpu))
    return {
        name: Reached(
            value=_short(value), low=_short(min(low, value)), high=_short(max(high, value)), source=f"{source}, {of}"
        )
        for name, (value, low, high, of) in found.items()
        if value > 0
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


Named = Iterator[tuple[str, tuple[float, float, float, str]]]


def _products(document: Mapping[str, Any], gpu: Gpu) -> Named:
    """Fit products by format; reading weights and the overlap are those of the formats together."""
    fits = {}
    for dtype, (name, peak) in PRODUCT.items():
        rows = [row for row in rows_of(document, "gemm") if row["dtype"] == dtype]
        if len(rows) >= FEW and peak in gpu.dense_flops:
            one = fit_products(rows, gpu.memory_bandwidth.value, gpu.dense_flops[peak].value)
            fits[dtype] = one
            low, high = _large(rows, gpu.dense_flops[peak].value)
            yield name, (float(one.constants[1]), low, high, _of(one, "products"))
    plain = [one for dtype, one in fits.items() if dtype != "fp8_blocks"]
    if plain:
        shares, overlaps = [float(one.constants[0]) for one in plain], [float(one.constants[2]) for one in plain]
        yield "stream_share", _middle(shares, 0.04, _of(plain[-1], "products of few rows"))
        yield "overlap", _middle(overlaps, 1.0, _of(plain[-1], "products"), share=False)


def fit_products(rows: Sequence[Row], bandwidth: float, peak: float) -> Fit:
    """Fit (share of bandwidth, share of peak, p, overhead) of rows with dtype, m, n, k and ms."""
    m, n, k = (np.array([row[name] for row in rows], float) for name in "mnk")
    size = WIDTH[rows[0]["dtype"]]
    model = product_model((n * k + m * k) * size + m * n * 2, 2 * m * n * k, bandwidth, peak)
    return fit(model, np.array([row["ms"] for row in rows]) / 1e3, [0.8, 0.65, 3.0, 4.0])


def _large(rows: Sequence[Row], peak: float) -> tuple[float, float]:
    """Return the shares of the peak that the slowest and the fastest tenth of large products reach."""
    shares = [2e3 * row["m"] * row["n"] * row["k"] / row["ms"] / peak for row in rows if row["m"] >= 1024]
    return (float(np.quantile(shares, 0.1)), float(np.quantile(shares, 0.9))) if shares else (0.0, 0.0)


def _middle(values: Sequence[float], apart: float, of: str, *, share: bool = True) -> tuple[float, float, float, str]:
    middle = sum(values) / len(values)
    low, high = min(*values, middle - apart), max(*values, middle + apart)
    return middle, max(low, 0.01), min(high, 1.0) if share else high, of


def _of(one: Fit, what: str) -> str:
    return f"{one.points} {what}, mean error {one.mean:.1%}"


def _streams(document: Mapping[str, Any], gpu: Gpu) -> Named:
    """Fit what reads caches, moves activations, and attends prompts; of several kernels the fastest counts."""
    bandwidth = gpu.memory_bandwidth.value
    cache = _fastest(
        ((row["sequences"], row["context"], row["kv_heads"]), _cache_bytes(row), row["ms"])
        for row in rows_of(document, "generation")
        if row["kv_dtype"] == "bf16" and row["width"] == 128
    )
    moved = _fastest(
        ((row["what"], row["rows"], row["width"]), MOVED[row["what"]] * row["rows"] * row["width"], row["ms"])
        for row in rows_of(document, "small")
        if row["what"] in MOVED
    )
    prompts = _fastest(
        ((row["sequences"], row["heads"], row["new"], row["past"]), _attended(row), row["ms"])
        for row in rows_of(document, "context")
        if row["width"] == 128
    )
    peak = gpu.dense_flops["bf16"].value if "bf16" in gpu.dense_flops else 0.0
    of = {
        "cache_share": (cache, bandwidth, "caches read"),
        "moved_share": (moved, bandwidth, "norms and activations"),
        "prompt_attention_share": (prompts, peak, "prompts"),
    }
    for name, (points, rate, what) in of.items():
        if len(points) >= FEW and rate:
            work, seconds = np.array([one for one, _ in points]), np.array([ms for _, ms in points]) / 1e3
            one = fit(rate_model(work, rate), seconds, [0.8, 5.0])
            yield name, _rate(one, what)


def _fastest(rows: Iterator[tuple[Any, float, float]]) -> list[tuple[float, float]]:
    """Return (work, ms) once for each key, the fastest."""
    best: dict[Any, tuple[float, float]] = {}
    for key, work, ms in rows:
        best[key] = min((float(work), ms), best.get(key, (float(work), ms)), key=lambda one: one[1])
    return list(best.values())


def _cache_bytes(row: Row) -> float:
    return float(row["sequences"] * row["context"] * row["kv_heads"] * 256 * WIDTH[row["kv_dtype"]])


def _attended(row: Row) -> float:
    """Return the operations of attention, of causal pairs half."""
    pairs = row["new"] ** 2 / 2 if not row["past"] else row["new"] * (row["new"] + row["past"])
    return float(2 * row["sequences"] * row["heads"] * (row["width"] + 128) * pairs)


def _links(document: Mapping[str, Any], gpu: Gpu) -> Named:
    """Fit the share of a link that all-reduces reach, their bytes as NCCL counts them on the bus."""
    link = gpu.nvlink_bytes_per_second
    rows = [
        row for row in rows_of(document, "links") if row["kind"] == "all_reduce" and row["bytes"] >= LEAST_LINK_BYTES
    ]
    if link is not None and len(rows) >= FEW_SIZES:
        seconds = np.array([row["graph_ms"] for row in rows]) / 1e3
        work = np.array([row["bus_gb_per_second"] for row in rows]) * 1e9 * seconds
        one = fit(rate_model(work, link.value), seconds, [0.7, 15.0])
        yield "link_share", _rate(one, f"all-reduces of {LEAST_LINK_BYTES >> 20} MiB or more")


def _rate(one: Fit, what: str) -> tuple[float, float, float, str]:
    """Return a share with bounds: what the slowest and the fastest tenth would say, and no more than the whole."""
    share = float(one.constants[0])
    return share, share / max(one.low, 1.0), max(share, min(share / min(one.high, 1.0), 1.0)), _of(one, what)
