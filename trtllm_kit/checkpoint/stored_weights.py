"""The tensors of a checkpoint in the unified layout as float32, whatever number format each is stored in."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from trtllm_kit.checkpoint.formats import DECODERS, profile_name
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.eight_bit import BLOCK
from trtllm_kit.checkpoint.formats.four_bit import NVFP4_BLOCK
from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE, SEARCHED_DECODERS
from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.checkpoint.matrix import Slice, matrix_shape
from trtllm_kit.checkpoint.packed import MXFP4_BLOCKS, Packed, packed
from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE, read_conversion
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import PLAIN, WEIGHT
from trtllm_kit.dtypes import F32, decode_e4m3, decode_e8m0
from trtllm_kit.errors import TensorError

_E8M0_NAN = 0xFF
_HALVES = ("BF16", "F16")
_DECODERS = {**DECODERS, **SEARCHED_DECODERS}


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of a folder; the reference forward pass reads them through this."""

    folder: WeightFolder

    def tensor(self, name: str) -> F32:
        """Return a tensor as float32, codes multiplied by their scales.

        Raises ``TensorError`` for a scale that is not finite and above zero, and for a format the kit does not read.
        """
        found = self._packed(name)
        if not found.shape:
            return to_float32(self.folder.read(name), self.folder.tensors[name].dtype)
        return self._values(found, 0, found.shape[0])

    def rows(self, name: str, begin: int, end: int) -> F32:
        """Return a part of a tensor's first axis as ``tensor`` does, of all the others nothing is read.

        Raises as ``tensor`` does. May be called by several threads at once.
        """
        return self._part(self._packed(name), begin, end)

    def stack_rows(self, name: str, index: int, begin: int, end: int) -> F32:
        """Return rows of one matrix of a stack, (rows, columns), as ``rows`` does; of MXFP4 all of it is read."""
        found = self._packed(name)
        if found.format == "mxfp4":
            whole: F32 = self.rows(name, index, index + 1)[0]
            return whole[begin:end]
        return self._part(found, begin, end, index)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor's values; raises ``TensorError`` for a format the kit does not read."""
        return self._packed(name).shape

    def _packed(self, name: str) -> Packed:
        found = packed(self.folder.tensors, name)
        if found is None:
            raise TensorError(
                f"tensor {name} is stored as {self.folder.tensors[name].dtype}",
                why="the scales beside it are of no format the kit reads",
                hint="convert the model's plain weights with trtkit convert",
            )
        return found

    def _part(self, found: Packed, begin: int, end: int, index: int | None = None) -> F32:
        """Return a part of the first axis, or of the second one at ``index``; more is read where entries are shared."""
        each = max(step for step in self._steps(found, index).values() if step is not None)
        length = found.shape[0 if index is None else 1]
        first, last = begin // each * each, min(-(-end // each) * each, length)
        return self._values(found, first, last, index)[begin - first : end - first]

    def _steps(self, found: Packed, index: int | None) -> dict[str, int | None]:
        """Return, for each part, how much of the values' axis one of its entries stands for; None for all."""
        axis = 0 if index is None else 1
        shapes = {part: self.folder.tensors[name].shape[axis:] for part, name in found.parts.items()}
        return {part: _step(shape, found.shape[axis]) for part, shape in shapes.items()}

    def _values(self, found: Packed, begin: int, end: int, index: int | None = None) -> F32:
        """Return a part of an axis; begin and end lie where every part has an entry that begins."""
        parts: dict[str, Raw] = {}
        for part, step in self._steps(found, index).items():
            stored = self.folder.tensors[found.parts[part]]
            if step is None:
                parts[part] = self.folder.read(stored.name)
            else:
                parts[part] = self._entries(stored, begin // step, -(-end // step), index)
            if part != WEIGHT:
                self._require_scales(parts[part], stored)
        dtype = self.folder.tensors[found.parts[WEIGHT]].dtype
        return to_float32(parts[WEIGHT], dtype) if found.format == PLAIN else _DECODERS[found.format](parts, dtype)

    def _entries(self, stored: StoredTensor, begin: int, end: int, index: int | None) -> Raw:
        """Return entries of a stored tensor's first axis, or of the second one at ``index``."""
        shape = stored.shape if index is None else stored.shape[1:]
        rows, columns = matrix_shape(shape)
        part = Slice(stored.name, (0, rows), (0, columns), index)
        each = rows // max(shape[0], 1)
        return self.folder.rows(part, begin * each, end * each).reshape(end - begin, *shape[1:])

    def input_factor(self, module: str) -> F32 | None:
        """Return what a module's input is multiplied by, (in features,), or None; raises as ``tensor`` does."""
        name = f"{module}.{PRE_QUANT_SCALE}"
        if name not in self.folder.tensors:
            return None
        values = to_float32(self.folder.read(name), self.folder.tensors[name].dtype)
        if not (np.isfinite(values) & (values > 0)).all():
            raise bad_scale(name, values, self._way_out)
        return values

    @property
    def formats(self) -> tuple[str, ...]:
        """The quantised formats of the folder's weights, each once, as a profile names them."""
        names = {name.removesuffix(MXFP4_BLOCKS) for name in self.folder.tensors}
        return tuple(sorted({self.number_format(name) for name in names} - {PLAIN}))

    def number_format(self, name: str) -> str:
        """Return how a tensor is stored: ``plain``, or a quantised format as a profile names it."""
        found = packed(self.folder.tensors, name)
        return PLAIN if found is None else profile_name(found.format)

    def scale(self, name: str) -> float | None:
        """Return a scalar, or None when the folder has none of that name; raises as ``tensor`` does."""
        if name not in self.folder.tensors:
            return None
        values = self.folder.read(name).ravel()
        if values.size != 1 or self.folder.tensors[name].dtype != "F32":
            raise bad_scale(name, values, self._way_out)
        self._require_scales(values, self.folder.tensors[name])
        return float(values[0])

    def _require_scales(self, raw: Raw, stored: StoredTensor) -> None:
        wrong = wrong_scales(raw, stored)
        if wrong.size:
            raise bad_scale(stored.name, wrong, self._way_out)

    @property
    def _way_out(self) -> str:
        """What to do about a scale: trtkit measured it, or it came with the source, or with this folder."""
        if not os.path.lexists(self.folder.folder / CONVERSION_FILE):
            return "download the model again, all its files from one revision"
        if read_conversion(self.folder.folder).model.stored is None:
            return "convert the checkpoint again"
        return "the scale came with the source checkpoint: download that again, all its files, and convert it anew"


def _step(shape: tuple[int, ...], length: int) -> int | None:
    """Return how many places of an axis of the values share an entry of a part, None when it has one for all.

    Two rows of four-bit codes share a byte, 16 rows of a turned stack a scale, and 128 rows the scale of a block.
    """
    if not shape or (math.prod(shape) == 1 and length > 1):
        return None
    return next(step for step in (1, 2, NVFP4_BLOCK, BLOCK) if -(-length // step) == shape[0])


def wrong_scales(raw: Raw, stored: StoredTensor) -> Raw:
    """Return the scales that are not finite and above zero; the e4m3 one of a block may be zero, as its numbers are."""
    values, least = raw, np.float32(np.finfo(np.float32).smallest_subnormal)
    if stored.dtype == "U8":
        values = np.where(raw == _E8M0_NAN, np.float32(np.nan), decode_e8m0(raw))
    elif stored.dtype in _HALVES:
        values = to_float32(raw, stored.dtype)
    elif stored.dtype == "F8_E4M3":
        values, least = np.where(raw & 0x80, np.float32(-1), decode_e4m3(raw)), np.float32(0)
    return values[~(np.isfinite(values) & (values >= least))]


def bad_scale(name: str, values: Raw, hint: str) -> TensorError:
    """Return the error for a scale with such values; the hint depends on who made it."""
    return TensorError(
        f"scale {name} is {values.ravel().tolist()[:4]}",
        why="every number of a scale is finite and above zero",
        hint=hint,
    )
