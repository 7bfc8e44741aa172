"""The step of a batch as recorded CUDA graphs: one launch instead of the hundreds that Python would start one by one.

A graph is of one shape, so there is one for each power of two of rows and of blocks, up to the most there can be. What
is no row of a batch reads and writes block 0, which belongs to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

Step = Callable[[Any, Any, Any], Any]
"""From blocks (rows, width), tokens kept (rows, 1) and last tokens (rows, 1) to logits (rows, vocabulary)."""
_WARM = 2
"""Passes before one is recorded: libraries choose their kernels in them."""


class Graphs:
    """Recorded steps by shape."""

    def __init__(self, step: Step, device: Any) -> None:
        """Take a step that neither waits for the device nor depends on values."""
        self._step, self._device = step, device
        self._made: dict[tuple[int, int], tuple[Any, tuple[Any, Any, Any], Any]] = {}
        self._memory: Any = None

    def record(self, rows: int, width: int, most: int) -> int:
        """Record every shape up to so many rows and blocks a row, and return how many those are.

        A shape of twice the ``most`` blocks that a batch looks at, or more, is left out. Raises ``RuntimeError``
        when the model cannot be recorded, or the memory is not there.
        """
        for high in _powers(rows):
            for wide in _powers(width):
                if high == 1 or wide == 1 or high * wide < 2 * most:
                    self._record(high, wide)
        return len(self._made)

    def run(self, blocks: Any, kept: Any, tokens: Any) -> Any:
        """Return the logits of a step, (rows, vocabulary), until the next one; None where its shape has no graph."""
        rows, width = blocks.shape
        made = self._made.get((_power(rows), _power(width)))
        if made is None:
            return None
        graph, places, logits = made
        for place, given in zip(places, (blocks, kept, tokens), strict=True):
            place.zero_()
            place[:rows, : given.shape[1]] = given
        graph.replay()
        return logits[:rows]

    def _record(self, rows: int, width: int) -> None:
        places = tuple(torch.zeros(rows, wide, dtype=torch.long, device=self._device) for wide in (width, 1, 1))
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM):
                self._step(*places)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            logits = self._step(*places)
        self._memory = self._memory or graph.pool()
        self._made[rows, width] = graph, places, logits


def _power(count: int) -> int:
    """Return the least power of two that is not below ``count``."""
    return 1 << (count - 1).bit_length()


def _powers(most: int) -> Iterator[int]:
    """Yield the powers of two up to the first that is not below ``most``, the greatest first."""
    for exponent in range((most - 1).bit_length(), -1, -1):
        yield 1 << exponent
