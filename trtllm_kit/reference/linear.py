"""A linear layer, plain or quantised."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.numeric import Observe
from trtllm_kit.reference.rounding import rounded_input

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
    weight: F32
    """(out features, in features), dequantised."""
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
        return replace(self, weight=self.weight[start:stop], bias=bias)

    def __call__(self, values: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, in features) to (tokens, out features)."""
        if observe is not None:
            observe(self.name, values)
        factored = values if self.input_factor is None else values * self.input_factor
        result = rounded_input(factored, self.number_format, self.input_scale) @ self.weight.T
        return result if self.bias is None else result + self.bias
