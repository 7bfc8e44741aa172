"""Reads the modules of one layer from a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Protocol

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.streamed import RowBlocks


class Weights(Protocol):
    """Where the tensors of a model come from; ``checkpoint.load`` reads them from a folder."""

    def tensor(self, name: str) -> F32:
        """Return a tensor as float32, multiplied by its scale when it is quantised."""

    def rows(self, name: str, begin: int, end: int) -> F32:
        """Return a part of a tensor's first axis: rows of a matrix, matrices of a stack; in any thread."""

    def stack_rows(self, name: str, index: int, begin: int, end: int) -> F32:
        """Return rows of one matrix of a stack, (rows, columns); in any thread."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor's values."""

    def scale(self, name: str) -> float | None:
        """Return a scalar such as ``….input_scale``, or None when the checkpoint holds none of that name."""

    def input_factor(self, module: str) -> F32 | None:
        """Return what a module's input is multiplied by before anything else, (in features,), or None."""

    def number_format(self, name: str) -> str:
        """Return how a tensor is stored, ``plain`` or a quantised format as a profile names it."""


def matrix(weights: Weights, name: str, *, streamed: bool) -> F32 | RowBlocks:
    """Return a matrix, or how its rows are read."""
    if not streamed:
        return weights.tensor(name)
    rows, columns = weights.shape(name)
    return RowBlocks(partial(weights.rows, name), 0, rows, columns)


@dataclass(frozen=True)
class LayerReader:
    """Reads by name; ``names`` are the tensors the model spec gives the layer."""

    weights: Weights
    names: frozenset[str]
    streamed: bool = False
    """Whether matrices are read anew for each product, so that memory holds none of them whole."""

    def linear(self, module: str) -> Linear:
        """Return the linear layer of that name, with its bias and its input scale when they are there."""
        return Linear(
            name=module,
            weight=matrix(self.weights, f"{module}.weight", streamed=self.streamed),
            bias=self.optional(f"{module}.bias"),
            input_scale=self.weights.scale(f"{module}.input_scale"),
            number_format=self.weights.number_format(f"{module}.weight"),
            input_factor=self.weights.input_factor(module),
        )

    def optional(self, name: str) -> F32 | None:
        """Return a tensor, or None when the layer has none of that name."""
        return self.weights.tensor(name) if name in self.names else None

    def parts(self, module: str, rows: Sequence[int]) -> list[Linear]:
        """Cut a fused linear into the ones it is made of, which have so many rows each and keep its name."""
        whole = self.linear(module)
        return [whole.rows(end - count, end) for count, end in zip(rows, accumulate(rows), strict=True)]
