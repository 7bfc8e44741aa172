"""A linear layer, plain or FP8 with static scales."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.numeric import Observe, fake_e4m3


@dataclass(frozen=True)
class Linear:
    """``y = x Wᵀ + b``.

    A quantised layer computes ``(e4m3(x / input_scale) W8ᵀ) * input_scale * weight_scale``. ``weight`` holds
    ``W8 * weight_scale`` already, and the input makes a round trip through e4m3, which is the same product.
    """

    name: str
    """Module name in the checkpoint, without ``.weight``."""
    weight: F32
    """(out features, in features), dequantised."""
    bias: F32 | None = None
    input_scale: float | None = None
    """Static activation scale of a quantised layer, or None."""

    def rows(self, start: int, stop: int) -> Linear:
        """Return the part of the layer that makes output features ``start`` to ``stop - 1``; it keeps the name."""
        bias = None if self.bias is None else self.bias[start:stop]
        return replace(self, weight=self.weight[start:stop], bias=bias)

    def __call__(self, values: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, in features) to (tokens, out features)."""
        if observe is not None:
            observe(self.name, values)
        if self.input_scale is not None:
            values = fake_e4m3(values, self.input_scale)
        result = values @ self.weight.T
        return result if self.bias is None else result + self.bias
