"""The tensors of a checkpoint in the unified layout as float32, whatever number format each is stored in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trtllm_kit.checkpoint.formats import DECODERS, profile_name
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE, SEARCHED_DECODERS
from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.checkpoint.packed import MXFP4_BLOCKS, packed
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import PLAIN, WEIGHT
from trtllm_kit.dtypes import F32, decode_e4m3, decode_e8m0
from trtllm_kit.errors import TensorError

_E8M0_NAN = 0xFF
_DECODERS = {**DECODERS, **SEARCHED_DECODERS}


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of a folder; the reference forward pass reads them through this."""

    folder: WeightFolder

    def tensor(self, name: str) -> F32:
        """Return a tensor as float32, codes multiplied by their scales.

        Raises ``TensorError`` for a scale that is not finite and above zero, and for a format the kit does not read.
        """
        found = packed(self.folder.tensors, name)
        stored = self.folder.tensors[name if found is None else found.parts[WEIGHT]]
        if found is None:
            raise TensorError(
                f"tensor {name} is stored as {stored.dtype}",
                why="the scales beside it are of no format the kit reads",
                hint="convert the model's plain weights with trtkit convert",
            )
        if found.format == PLAIN:
            return to_float32(self.folder.read(name), stored.dtype)
        parts = {part: self.folder.read(tensor) for part, tensor in found.parts.items()}
        for part, tensor in found.parts.items():
            if part != WEIGHT:
                _require_scales(parts[part], self.folder.tensors[tensor])
        return _DECODERS[found.format](parts, stored.dtype)

    def input_factor(self, module: str) -> F32 | None:
        """Return what a module's input is multiplied by, (in features,), or None; raises as ``tensor`` does."""
        name = f"{module}.{PRE_QUANT_SCALE}"
        if name not in self.folder.tensors:
            return None
        values = to_float32(self.folder.read(name), self.folder.tensors[name].dtype)
        if not (np.isfinite(values) & (values > 0)).all():
            raise bad_scale(name, values)
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
            raise bad_scale(name, values)
        _require_scales(values, self.folder.tensors[name])
        return float(values[0])


def _require_scales(raw: Raw, stored: StoredTensor) -> None:
    wrong = wrong_scales(raw, stored)
    if wrong.size:
        raise bad_scale(stored.name, wrong)


def wrong_scales(raw: Raw, stored: StoredTensor) -> Raw:
    """Return the scales that are not finite and above zero; the e4m3 one of a block may be zero, as its numbers are."""
    values, least = raw, np.float32(np.finfo(np.float32).smallest_subnormal)
    if stored.dtype == "U8":
        values = np.where(raw == _E8M0_NAN, np.float32(np.nan), decode_e8m0(raw))
    elif stored.dtype == "F8_E4M3":
        values, least = np.where(raw & 0x80, np.float32(-1), decode_e4m3(raw)), np.float32(0)
    return values[~(np.isfinite(values) & (values >= least))]


def bad_scale(name: str, values: Raw) -> TensorError:
    """Return the error for a scale with such values."""
    return TensorError(
        f"scale {name} is {values.ravel().tolist()[:4]}",
        why="a scale is one finite number above zero, as float32",
        hint="convert the checkpoint again",
    )
