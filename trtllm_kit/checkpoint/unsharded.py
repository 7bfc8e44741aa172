"""The tensors of an engine's checkpoint under their Hugging Face names, as if they were stored so.

Each is put together from the ranks' files while it is read, some rows at a time: memory holds what is asked for.
What several ranks hold alike is read from all of them, and copies that differ are an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trtllm_kit.checkpoint.formats.bits import round_to, to_float32
from trtllm_kit.checkpoint.formats.eight_bit import decode_fp8_rowwise
from trtllm_kit.checkpoint.header import FileHeader, StoredTensor, item_bytes
from trtllm_kit.checkpoint.matrix import Slice, matrix_shape
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.numpy_types import NUMPY_TYPES
from trtllm_kit.checkpoint.part_places import Place
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import WEIGHT
from trtllm_kit.checkpoint.stored_weights import bad_scale, wrong_scales
from trtllm_kit.errors import TensorError
from trtllm_kit.plan.ranks import LAYOUT

AGAIN = "copy the checkpoint again from where it was made, all its files from one conversion"
_HALVES = ("BF16", "F16")


class Copy(NamedTuple):
    """Where a rank has a block of a tensor."""

    folder: WeightFolder
    name: str
    """Of the rank's tensor."""
    row: int
    """First row there, of the tensor taken as a matrix."""

    @property
    def file(self) -> str:
        """Name of the rank's file."""
        return self.folder.files[0].path.name


class Block(NamedTuple):
    """A rectangle of a tensor, and every rank's copy of it."""

    place: Place
    copies: Sequence[Copy]


@dataclass(frozen=True)
class Joined:
    """One tensor as the blocks it is made of."""

    name: str
    dtype: str
    """As safetensors spells it; e4m3 and packed codes that lie as I8 have their own."""
    shape: tuple[int, ...]
    part: str
    """``weight``, or one of the scales beside one."""
    blocks: tuple[Block, ...]

    def rows(self, begin: int, end: int) -> Raw:
        """Return rows of the tensor taken as a matrix; raises ``TensorError`` for copies that differ and bad scales."""
        found = np.empty((end - begin, matrix_shape(self.shape)[1]), NUMPY_TYPES[self.dtype])
        for block in self.blocks:
            top, bottom = block.place.rows
            first, last = max(begin, top), min(end, bottom)
            if first < last:
                part = self._agreed(block, first - top, last - top)
                found[first - begin : last - begin, slice(*block.place.columns)] = part
        if self.part != WEIGHT:
            self._require_scales(found)
        return found

    def _agreed(self, block: Block, first: int, last: int) -> Raw:
        width = block.place.columns[1] - block.place.columns[0]
        original, *others = block.copies
        values = self._read(original, width, first, last)
        for other in others:
            found = self._read(other, width, first, last)
            if not np.array_equal(values, found):
                raise self._differing(original, other, (values, found), block.place.rows[0] + first)
        return values

    def read_of(self, copy: Copy) -> tuple[str, ...]:
        """Return the names of a rank's tensors that a copy is read from."""
        return (copy.name,)

    def _read(self, copy: Copy, width: int, first: int, last: int) -> Raw:
        stored = copy.folder.tensors[copy.name]
        raw = copy.folder.rows(Slice(copy.name, (0, copy.row + last), (0, width)), copy.row + first, copy.row + last)
        if self.dtype == "F32" and stored.dtype in _HALVES:
            return to_float32(raw, stored.dtype)
        return raw.view(NUMPY_TYPES[self.dtype])

    def _differing(self, one: Copy, other: Copy, read: tuple[Raw, Raw], row: int) -> TensorError:
        where = np.argwhere(read[0] != read[1])
        if len(where):
            at = tuple(where[0])
            shown = f"{self._value(read[0][at])} and {self._value(read[1][at])}"
        else:
            at, shown = (0, 0), "NaN"
        files = f"{one.file} and {other.file}"
        why = f"{len(where):,} of {read[0].size:,} numbers differ, the first at [{row + at[0]}, {at[1]}]: {shown}"
        if read[0].size == 1:
            why = f"they have {shown}, and the unified layout keeps one number for all of it"
        return TensorError(f"{self.name} is not the same in {files}", why=why, hint=AGAIN)

    def _value(self, raw: Raw) -> str:
        values = to_float32(np.array([raw]), self.dtype) if self.dtype in (*_HALVES, "F32") else np.array([raw])
        return f"{values[0]:g}"

    def _require_scales(self, found: Raw) -> None:
        wrong = wrong_scales(found, self.stored)
        if wrong.size:
            raise bad_scale(self.name, wrong, AGAIN)

    @property
    def origin(self) -> str:
        """The ranks' tensors that it is put together from, in words."""
        files: dict[str, dict[str, None]] = {}
        for name, file in ((copy.name, copy.file) for block in self.blocks for copy in block.copies):
            files.setdefault(name, {})[file.removesuffix(".safetensors")] = None
        return "; ".join(f"{name} of {', '.join(ranks)}" for name, ranks in files.items())

    @property
    def stored(self) -> StoredTensor:
        """The tensor as a header of a Hugging Face file would have it; it lies in no single file."""
        first: FileHeader = self.blocks[0].copies[0].folder.files[0]
        nbytes = math.prod(self.shape) * item_bytes(self.dtype)
        return StoredTensor(self.name, self.dtype, self.shape, first.path, 0, nbytes, first.stamp)


@dataclass(frozen=True)
class Decoded(Joined):
    """A weight of row-wise FP8 in 16 bit: ranks that hold other columns have another scale for the same row."""

    def read_of(self, copy: Copy) -> tuple[str, ...]:
        """Return the names of codes and scales."""
        return copy.name, part_name(copy.name, "weight_scale", LAYOUT, "fp8_rowwise")

    def _read(self, copy: Copy, width: int, first: int, last: int) -> Raw:
        top, bottom, (_, scale) = copy.row + first, copy.row + last, self.read_of(copy)
        parts = {
            WEIGHT: copy.folder.rows(Slice(copy.name, (0, bottom), (0, width)), top, bottom),
            "weight_scale": copy.folder.rows(Slice(scale, (0, bottom), (0, 1)), top, bottom)[:, 0],
        }
        if wrong_scales(parts["weight_scale"], copy.folder.tensors[scale]).size:
            raise bad_scale(f"{scale} of {copy.file}", parts["weight_scale"], AGAIN)
        return round_to(decode_fp8_rowwise(parts, self.dtype), self.dtype, self.name)


@dataclass(frozen=True)
class Unsharded(WeightFolder):
    """The same as a folder of weights, so that all that reads one reads this."""

    joined: Mapping[str, Joined] = field(default_factory=dict)
    _numbers: dict[tuple[tuple[str, str, int], ...], float] = field(default_factory=dict, repr=False, compare=False)

    def rows(self, part: Slice, begin: int, end: int) -> Raw:
        """Return rows of a slice, (rows, columns), as ``WeightFolder`` does; raises ``TensorError`` besides."""
        rows = self.joined[part.tensor].rows(part.rows[0] + begin, part.rows[0] + end)
        return rows[:, slice(*part.columns)]

    def number(self, name: str) -> float:
        """Return a scale that is one number; what many weights share is read once."""
        place = tuple((copy.file, copy.name, copy.row) for copy in self.joined[name].blocks[0].copies)
        if place not in self._numbers:
            self._numbers[place] = float(self.read(name).ravel()[0])
        return self._numbers[place]


def names_of(joined: Mapping[str, Joined]) -> Iterator[tuple[str, str]]:
    """Yield file and name of every tensor of a rank that is part of one of these."""
    for one in joined.values():
        for block in one.blocks:
            yield from ((copy.file, name) for copy in block.copies for name in one.read_of(copy))
