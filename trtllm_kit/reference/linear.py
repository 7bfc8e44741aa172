"""A linear layer, plain or quantised."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.numeric import Observe, row_tiles
from trtllm_kit.reference.rounding import rounded_input
from trtllm_kit.reference.streamed import ExpertColumns, RowBlocks

PLAIN = "plain"


@dataclass(frozen=True)
class Linear:
    """``y = x Wᵀ + b``.

    A quantised layer of FP8 computes ``(e4m3(x / input_scale) W8ᵀ) * input_scale * weight_scale``. ``weight`` holds
    ``W8 * weight_scale`` already, and the input makes a round trip through e4m3, which is the same product. What
    other formats do to their input is in ``reference.rounding``.
    """

    name: str
    """Module name in the checkpoint, without ``.weight``."""
    weight: F32 | RowBlocks | ExpertColumns
    """(out features, in features), dequantised: whole, or read for each product."""
    bias: F32 | None = None
    input_scale: float | None = None
    """Static activation scale of a quantised layer, or None."""
    number_format: str = PLAIN
    """How the weight is stored; formats with dynamic scales round the input without ``input_scale``."""
    input_factor: F32 | None = None
    """(in features,) what the input is multiplied by first, ``pre_quant_scale``; the weight is divided by it."""

    def rows(self, start: int, stop: int) -> Linear:
        """Return the part of the layer that makes output features ``start`` to ``stop - 1``; it keeps the name."""
        bias = None if self.bias is None else self.bias[start:stop]
        weight = self.weight
        if isinstance(weight, ExpertColumns):
            raise TypeError("an expert's columns are chosen where it is built")
        cut = weight.cut(start, stop) if isinstance(weight, RowBlocks) else weight[start:stop]
        return replace(self, weight=cut, bias=bias)

    def __call__(self, values: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, in features) to (tokens, out features)."""
        if observe is not None:
            observe(self.name, values)
        result = self._product(self._rounded(values))
        if self.bias is not None:
            result += self.bias
        return result

    def _product(self, values: F32) -> F32:
        if isinstance(self.weight, np.ndarray):
            whole: F32 = values @ self.weight.T
            return whole
        return self.weight.product(values)

    def _rounded(self, values: F32) -> F32:
        """Return the input as the weight meets it, a few tokens at a time: each is rounded on its own."""
        if self.input_factor is None and self.number_format == PLAIN and self.input_scale is None:
            return values
        found = np.empty_like(values)
        for at in row_tiles(values):
            factored = values[at] if self.input_factor is None else values[at] * self.input_factor
            found[at] = rounded_input(factored, self.number_format, self.input_scale)
        return found
