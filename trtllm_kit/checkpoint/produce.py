"""Makes the data of output tensors: tiles are read, checked and encoded by threads, and come out in order.

Memory holds a few tiles, and the scales of a matrix between its weight and their own place in the file. Bytes do not
depend on the number of threads: a tile's rows are encoded alone, and tiles keep their order.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import NamedTuple

import numpy as np

from trtllm_kit.checkpoint.formats import ENCODERS, measured_scale
from trtllm_kit.checkpoint.formats.base import Part
from trtllm_kit.checkpoint.formats.bits import ones
from trtllm_kit.checkpoint.matrix import Matrix, tile_ranges
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import WEIGHT, TensorStep
from trtllm_kit.checkpoint.values import half_of, largest_of, rows_in
from trtllm_kit.progress import Progress
from trtllm_kit.units import MIB

_AHEAD = 4
"""Tiles that may be at work or wait for their turn, for each thread."""
_MOST_THREADS = 4
"""More contend for the interpreter: on 16 cores 4 GB took 4.7 s with 4 threads and 8.1 s with 16."""
_KEPT_BYTES = 64 * MIB
"""Scales of one matrix that are kept until their turn; larger ones cost a second reading of their source."""


class _Tile(NamedTuple):
    """What makes the arrays of some rows: the first is the step's, the others wait for a step of their own."""

    make: Callable[[], tuple[Raw, ...]]
    others: tuple[list[Raw], ...] = ()
    """Where these wait."""


class _Kept(NamedTuple):
    """Arrays that were made with another step, complete by the time it is this one's turn."""

    arrays: list[Raw]


class Producer:
    """Reads the source and makes what ``TensorStep`` ask for; a context that ends its threads."""

    def __init__(
        self, weights: WeightFolder, half: str, amax: Mapping[str, float], progress: Progress, threads: int = 0
    ) -> None:
        """Take the source, the 16-bit format of float32 tensors, and what was measured for each calibrated scale.

        ``threads`` of 0 stands for one a processor, up to ``_MOST_THREADS``.
        """
        self._weights = weights
        self._half = half
        self._amax = amax
        self._progress = progress
        self._threads = threads or min(len(os.sched_getaffinity(0)), _MOST_THREADS)
        self._encoding = ThreadPoolExecutor(self._threads, "encode")
        self._scanning = ThreadPoolExecutor(1, "scan")
        self._largest: dict[Matrix, Future[float]] = {}
        self._kept: dict[tuple[Matrix | None, str, str], list[Raw]] = {}

    def __enter__(self) -> Producer:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop what has not begun, and wait for what has."""
        for pool in (self._encoding, self._scanning):
            pool.shutdown(wait=True, cancel_futures=True)

    def pieces(self, steps: Sequence[TensorStep]) -> Iterator[Raw]:
        """Yield the data of ``steps`` in order, no array across the border of two.

        Raises ``TensorError`` for NaN or Inf in the source, ``WeightFileError`` when its files change.
        """
        waiting: deque[tuple[_Tile, Future[tuple[Raw, ...]]] | _Kept] = deque()
        for tile in self._tiles(steps):
            waiting.append(tile if isinstance(tile, _Kept) else (tile, self._encoding.submit(tile.make)))
            if len(waiting) >= _AHEAD * self._threads:
                yield from self._told(waiting.popleft())
        while waiting:
            yield from self._told(waiting.popleft())

    def _told(self, ready: tuple[_Tile, Future[tuple[Raw, ...]]] | _Kept) -> Iterator[Raw]:
        for piece in ready.arrays if isinstance(ready, _Kept) else _first(*ready):
            yield piece
            self._progress.advance(piece.nbytes)

    def _tiles(self, steps: Sequence[TensorStep]) -> Iterator[_Tile | _Kept]:
        parts = [part for step in steps for part in step.parted()]
        scanned = [step for step in parts if step.source and not step.copied and ENCODERS[step.format].needs_amax]
        for step in parts:
            if scanned and step is scanned[0]:
                for near in scanned[:2]:  # the next one is read while this one is encoded
                    self._scan(near)
                scanned.pop(0)
            yield from self._tiles_of(step)

    def _tiles_of(self, step: TensorStep) -> Iterator[_Tile | _Kept]:
        if step.source is None and not step.measured:
            yield _Tile(lambda: (ones(step.shape, step.dtype),))
        elif step.source is None:
            amax = max(self._amax[name] for name in step.measured)
            yield _Tile(lambda: (measured_scale(step.format, step.part, amax),))
        elif step.copied:
            yield from self._plain(step, step.source)
        elif (step.source, step.format, step.part) in self._kept:
            yield _Kept(self._kept.pop((step.source, step.format, step.part)))
        else:
            yield from self._encoded(step, step.source)

    def _plain(self, step: TensorStep, source: Matrix) -> Iterator[_Tile]:
        for begin, end in tile_ranges(source):
            yield _Tile(partial(self._copied, step, source, begin, end))

    def _copied(self, step: TensorStep, source: Matrix, begin: int, end: int) -> tuple[Raw, ...]:
        return (rows_in(self._weights, source, begin, end, step.dtype),)

    def _encoded(self, step: TensorStep, source: Matrix) -> Iterator[_Tile]:
        """Encode a matrix for one of its parts; with its weight come the scales that wait for their turn."""
        encoder, amax = ENCODERS[step.format], self._amax_of(step)
        parts = encoder.parts(source.rows, source.columns)
        growing = _growing(parts)
        if step.part not in growing:
            yield _Tile(lambda: (encoder.constants(amax())[step.part],))
            return
        kept = growing[1:] if step.part == WEIGHT and self._fits(step, parts) else ()
        lists: tuple[list[Raw], ...] = tuple([] for _ in kept)
        self._kept |= {(source, step.format, part): arrays for part, arrays in zip(kept, lists, strict=True)}
        dtype, at = half_of(self._weights, source, self._half), growing.index(step.part)

        def make(begin: int, end: int) -> tuple[Raw, ...]:
            tile = rows_in(self._weights, source, begin, end, dtype, check=not encoder.needs_amax)
            return encoder.encode(tile.view(np.uint16), dtype, amax())[at:]

        for begin, end in tile_ranges(source, encoder.row_step):
            yield _Tile(partial(make, begin, end), lists)

    def _fits(self, step: TensorStep, parts: tuple[Part, ...]) -> bool:
        """Whether the scales of a matrix are small enough to be kept until their turn."""
        small = [part for part in parts if part.name != WEIGHT]
        return sum(TensorStep(step.name, part.dtype, part.shape).nbytes for part in small) <= _KEPT_BYTES

    def _scan(self, step: TensorStep) -> list[Future[float]]:
        """Let the largest magnitudes that a step depends on be looked for, each once."""
        for matrix in step.scanned:
            if matrix not in self._largest:
                self._largest[matrix] = self._scanning.submit(largest_of, self._weights, matrix, self._half)
        return [self._largest[matrix] for matrix in step.scanned]

    def _amax_of(self, step: TensorStep) -> Callable[[], float | None]:
        """Return what waits for the largest magnitude of a step's matrices, None for a format that wants none."""
        if not ENCODERS[step.format].needs_amax:
            return lambda: None
        scans = self._scan(step)
        return lambda: max(scan.result() for scan in scans)


def _first(tile: _Tile, made: Future[tuple[Raw, ...]]) -> Iterator[Raw]:
    first, *others = made.result()
    for waiting, array in zip(tile.others, others, strict=bool(tile.others)):
        waiting.append(array)
    yield first


def _growing(parts: tuple[Part, ...]) -> tuple[str, ...]:
    """Return the parts that have rows; a scalar is one for the matrix."""
    return tuple(part.name for part in parts if part.shape)
