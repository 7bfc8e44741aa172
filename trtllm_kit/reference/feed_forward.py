"""Feed-forward blocks: gated dense, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, sigmoid, softmax


@dataclass(frozen=True)
class DenseBlock:
    """``down(activation(gate(x)) * up(x))``."""

    gate: Linear
    up: Linear
    down: Linear
    activation: Callable[[F32], F32]

    def __call__(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden)."""
        opened = self.activation(self.gate(hidden, observe)) * self.up(hidden, observe)
        return self.down(opened, observe)


@dataclass(frozen=True)
class ExpertsBlock:
    """A router picks ``per_token`` experts for each token and mixes their answers."""

    router: Linear
    experts: tuple[DenseBlock, ...]
    per_token: int
    normalise_top_k: bool

    def __call__(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden)."""
        odds = softmax(self.router(hidden, observe))
        chosen = np.argsort(-odds, axis=-1, kind="stable")[:, : self.per_token]
        share = np.take_along_axis(odds, chosen, axis=-1)
        if self.normalise_top_k:
            share = share / share.sum(axis=-1, keepdims=True)
        mixed = np.zeros_like(hidden)
        for number in np.unique(chosen):
            token, slot = np.nonzero(chosen == number)
            mixed[token] += self.experts[number](hidden[token], observe) * share[token, slot, None]
        return mixed


@dataclass(frozen=True)
class Llama4Experts:
    """A router scales a token by a sigmoid before each of its experts; one more expert sees every token."""

    router: Linear
    experts: tuple[DenseBlock, ...]
    shared: DenseBlock
    per_token: int

    def __call__(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden)."""
        scores = self.router(hidden, observe)
        chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : self.per_token]
        share = sigmoid(np.take_along_axis(scores, chosen, axis=-1))
        mixed = self.shared(hidden, observe)
        for number in np.unique(chosen):
            token, slot = np.nonzero(chosen == number)
            mixed[token] += self.experts[number](hidden[token] * share[token, slot, None], observe)
        return mixed
