"""Matrices that memory never holds whole: a product reads some rows, multiplies by them and lets them go."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.dtypes import F32

BLOCK_ELEMENTS = 1 << 21
"""Of what is held at once, 8 MiB in float32: enough for a product to be worth its call."""
ROW_STEP = 128
"""Blocks are a multiple of so many rows where they can be: no format has scales for more of them."""
_AHEAD = min(len(os.sched_getaffinity(0)), 4)
"""Blocks that are read and decoded while one is multiplied."""


@dataclass(frozen=True)
class RowBlocks:
    """Rows of a stored matrix, (out features, in features)."""

    read: Callable[[int, int], F32]
    """Returns rows of the stored matrix as float32; called by several threads at once."""
    begin: int
    end: int
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.end - self.begin, self.columns

    def __len__(self) -> int:
        """Return the rows."""
        return self.end - self.begin

    def cut(self, start: int, stop: int) -> RowBlocks:
        """Return some of the rows."""
        return replace(self, begin=self.begin + start, end=self.begin + stop)

    def take(self, ids: NDArray[np.int64]) -> F32:
        """Return single rows, (ids, columns); each is read once."""
        wanted, places = np.unique(ids, return_inverse=True)
        rows = np.empty((len(wanted), self.columns), np.float32)
        for at, row in enumerate(wanted.tolist()):
            rows[at] = self.read(self.begin + row, self.begin + row + 1)[0]
        found: F32 = rows[places.reshape(ids.shape)]
        return found

    def product(self, values: F32) -> F32:
        """Return ``values`` times the matrix turned over: (tokens, in features) to (tokens, out features)."""
        result = np.empty((len(values), len(self)), np.float32)
        for (begin, end), block in _ahead(self.read, _ranges(self.begin, self.end, self.columns)):
            np.matmul(values, block.T, out=result[:, begin - self.begin : end - self.begin])
        return result


@dataclass(frozen=True)
class ExpertColumns:
    """Some columns of one matrix of a stack, which is stored (in features, out features)."""

    read: Callable[[int, int], F32]
    """Returns rows of the matrix, all columns of them, as float32; called by several threads at once."""
    shape: tuple[int, int]
    """Of the matrix: in features, and all its columns."""
    columns: slice
    whole: bool = False
    """No part of its rows can be read by itself, so that they are read at once."""

    def product(self, values: F32) -> F32:
        """Return ``values`` times the columns: (tokens, in features) to (tokens, out features)."""
        rows, width = self.shape
        result = np.zeros((len(values), len(range(width)[self.columns])), np.float32)
        ranges = [(0, rows)] if self.whole else _ranges(0, rows, width)
        for (begin, end), block in _ahead(self.read, ranges):
            result += values[:, begin:end] @ np.ascontiguousarray(block[:, self.columns])  # BLAS takes no gaps
        return result


def _ranges(begin: int, end: int, columns: int) -> list[tuple[int, int]]:
    """Return the rows of each block."""
    step = BLOCK_ELEMENTS // columns
    step = step // ROW_STEP * ROW_STEP if step >= ROW_STEP else max(step, 1)
    return [(at, min(at + step, end)) for at in range(begin, end, step)]


def _ahead(read: Callable[[int, int], F32], ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], F32]]:
    """Yield each range with what lies in it, in order, a few of them read beforehand by threads."""
    if len(ranges) == 1:
        yield ranges[0], read(*ranges[0])
        return
    told = np.geterr()  # of this thread alone

    def quietly(begin: int, end: int) -> F32:
        with np.errstate(**told):
            return read(begin, end)

    with ThreadPoolExecutor(_AHEAD) as pool:
        left, waiting = iter(ranges), deque[tuple[tuple[int, int], Future[F32]]]()
        for one in islice(left, _AHEAD):
            waiting.append((one, pool.submit(quietly, *one)))
        while waiting:
            place, coming = waiting.popleft()
            block = coming.result()
            for one in islice(left, 1):
                waiting.append((one, pool.submit(quietly, *one)))
            yield place, block
