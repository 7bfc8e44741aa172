"""Feed-forward blocks: gated dense, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, row_tiles, sigmoid
from trtllm_kit.reference.routing import Router, best


@dataclass(frozen=True)
class DenseBlock:
    """``down(activation(gate(x)) * up(x))``."""

    gate: Linear
    up: Linear
    down: Linear
    activation: Callable[[F32], F32]

    def __call__(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden)."""
        gate, up = self.gate(hidden, observe), self.up(hidden, observe)
        for at in row_tiles(gate):
            gate[at] = self.activation(gate[at]) * up[at]
        del up
        return self.down(gate, observe)


@dataclass(frozen=True)
class ClippedBlock:
    """``down((up + 1) * gate * sigmoid(1.702 gate))``, gate and up held within ``limit`` (gpt-oss)."""

    gate: Linear
    up: Linear
    down: Linear
    limit: float

    def __call__(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden)."""
        gate, up = self.gate(hidden, observe), self.up(hidden, observe)
        limit = np.float32(self.limit)
        for at in row_tiles(gate):
            opened, lifted = np.minimum(gate[at], limit), np.clip(up[at], -limit, limit) + 1
            gate[at] = lifted * opened * sigmoid(np.float32(_SLOPE) * opened)
        del up
        return self.down(gate, observe)


GatedBlock = DenseBlock | ClippedBlock

_SLOPE = 1.702
"""With it ``x * sigmoid(slope x)`` comes close to GELU."""


@dataclass(frozen=True)
class ExpertsBlock:
    """A router picks experts for each token and mixes their answers; one more expert may see every token."""

    router: Router
    experts: tuple[GatedBlock, ...]
    shared: GatedBlock | None = None

    def __call__(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden)."""
        chosen, share = self.router(hidden, observe)
        mixed = np.zeros_like(hidden) if self.shared is None else self.shared(hidden, observe)
        for number in np.unique(chosen):
            token, slot = np.nonzero(chosen == number)
            mixed[token] += self.experts[number](hidden[token], observe) * share[token, slot, None]
        return mixed


@dataclass(frozen=True)
class Llama4Experts:
    """A router scales a token by a sigmoid before each of its experts; one more expert sees every token."""

    router: Linear
    experts: tuple[GatedBlock, ...]
    shared: GatedBlock
    per_token: int

    def __call__(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden)."""
        scores = self.router(hidden, observe)
        chosen = best(scores, self.per_token)
        share = sigmoid(np.take_along_axis(scores, chosen, axis=-1))
        mixed = self.shared(hidden, observe)
        for number in np.unique(chosen):
            token, slot = np.nonzero(chosen == number)
            mixed[token] += self.experts[number](hidden[token] * share[token, slot, None], observe)
        return mixed
