"""Makes the data of each output tensor, tile by tile."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trtllm_kit.checkpoint.formats import (
    check_finite,
    fp8_scale,
    fp8_table,
    largest_magnitude,
    quantise,
    round_to,
)
from trtllm_kit.checkpoint.layout import TensorStep, half_format
from trtllm_kit.checkpoint.reader import Raw, WeightFolder
from trtllm_kit.progress import Progress
from trtllm_kit.spec.model import ModelSpec

_MATRIX = 2
_FLOATS = ("BF16", "F16", "F32")


class Producer:
    """Reads the source and makes what each ``TensorStep`` asks for."""

    def __init__(self, weights: WeightFolder, model: ModelSpec, amax: dict[str, float], progress: Progress) -> None:
        """Take the source, and the measured amax of each calibrated scale by the scale's tensor name."""
        self._weights = weights
        self._half = half_format(model)
        self._amax = amax
        self._progress = progress
        self._largest: dict[str, float] = {}

    def tiles(self, step: TensorStep) -> Iterator[Raw]:
        """Yield the data of one output tensor in order; raises ``TensorError`` for NaN or Inf in its source."""
        for tile in self._tiles(step):
            yield tile
            self._progress.advance(tile.nbytes)

    def _tiles(self, step: TensorStep) -> Iterator[Raw]:
        match step.action:
            case "copy" | "round":
                yield from self._plain(step)
            case "quantise":
                dtype = self._half_of(step.source)
                table = fp8_table(self._weight_scale(step), dtype, twice=len(step.shape) == _MATRIX)
                for tile in self._half_tiles(step.source):
                    yield quantise(tile, table)
            case "weight_scale":
                yield np.array([self._weight_scale(step)])
            case "input_scale" | "kv_scale":
                yield np.array([fp8_scale(self._amax[step.name])])

    def _plain(self, step: TensorStep) -> Iterator[Raw]:
        stored = self._weights.tensors[step.source].dtype
        for tile in self._weights.tiles(step.source):
            checked = check_finite(tile, stored, step.source) if stored in _FLOATS else tile
            yield checked if step.action == "copy" else round_to(checked, step.dtype, step.source)

    def _weight_scale(self, step: TensorStep) -> np.float32:
        sources = (step.source,) if step.scaled_with is None else (step.source, step.scaled_with)
        return fp8_scale(max(self._largest_of(name) for name in sources))

    def _largest_of(self, name: str) -> float:
        if name not in self._largest:
            self._largest[name] = largest_magnitude(self._half_tiles(name), self._half_of(name), name)
        return self._largest[name]

    def _half_of(self, name: str) -> str:
        stored = self._weights.tensors[name].dtype
        return self._half if stored == "F32" else stored

    def _half_tiles(self, name: str) -> Iterator[Raw]:
        """Yield a tensor in 16 bits; float32 is rounded to the model's 16-bit format first."""
        stored = self._weights.tensors[name].dtype
        for tile in self._weights.tiles(name):
            yield tile if stored != "F32" else round_to(check_finite(tile, stored, name), self._half, name)
