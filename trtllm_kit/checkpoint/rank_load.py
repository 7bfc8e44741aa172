"""Reads an engine's checkpoint back into the tensors of its model, for the quality report and the reference runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trtllm_kit.checkpoint.formats import DECODERS
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE, SEARCHED_DECODERS
from trtllm_kit.checkpoint.matrix import Slice, matrix_shape
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.rank_files import IN_A_BYTE, Piece, RankFiles
from trtllm_kit.checkpoint.rank_layout import ENCODED_AS
from trtllm_kit.checkpoint.rank_split import World
from trtllm_kit.checkpoint.rank_tensors import RankTensor
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import PLAIN
from trtllm_kit.checkpoint.stored_weights import bad_scale, wrong_scales
from trtllm_kit.dtypes import F32
from trtllm_kit.plan.formats import FORMATS
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.ranks import LAYOUT
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import GROUPED, PartFormat
from trtllm_kit.spec.tensors import model_tensors

_DECODERS = {**DECODERS, **SEARCHED_DECODERS}


class RankWeights:
    """The tensors of a model as float32, put together from the ranks' files."""

    def __init__(
        self,
        folder: Path,
        model: ModelSpec,
        split: Split,
        built_as: Mapping[str, PartFormat] | None = None,
        vocabulary_multiple: int = 1,
    ) -> None:
        """Read the header of every rank; raises ``TensorError`` with everything that is missing or of another shape.

        ``built_as`` has the format of what lies in 16 bit until ``trtllm-build`` packs it, by ``TensorFact`` name: its
        values are those of the engine.
        """
        self._bits = {name: FORMATS[number_format].bits for name, number_format in (built_as or {}).items()}
        shapes = {name: fact.shape for fact in model_tensors(model) for name in fact.names()}
        world = World(model, split, shapes, vocabulary_multiple)
        self._shapes = shapes
        self._ranks = RankFiles(folder, world)
        self._files = self._ranks.files

    def tensor(self, name: str) -> F32:
        """Return a tensor as float32, multiplied by its scale when it is quantised."""
        height, _ = matrix_shape(self._shapes[name])
        return self._rows(name, 0, height).reshape(self._shapes[name])

    def rows(self, name: str, begin: int, end: int) -> F32:
        """Return a part of a tensor's first axis, as ``tensor`` does; threads may call it at once."""
        shape = self._shapes[name]
        each = matrix_shape(shape)[0] // max(shape[0], 1)
        return self._rows(name, begin * each, end * each).reshape(end - begin, *shape[1:])

    def stack_rows(self, name: str, index: int, begin: int, end: int) -> F32:
        """Return rows of one matrix of a stack, (rows, columns), as ``rows`` does."""
        each = self._shapes[name][1]
        return self._rows(name, index * each + begin, index * each + end)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor's values."""
        return self._shapes[name]

    def _rows(self, name: str, begin: int, end: int) -> F32:
        """Return rows of a tensor taken as a matrix."""
        found = np.empty((end - begin, matrix_shape(self._shapes[name])[1]), dtype=np.float32)
        for piece in self._ranks.first(name):
            top, bottom = piece.part.rows
            first, last = max(begin, top), min(end, bottom)
            if first < last:
                found[first - begin : last - begin, slice(*piece.part.columns)] = self._values(
                    piece, first - top, last - top
                )
        return found

    def scale(self, name: str) -> float | None:
        """Return a static scale by the unified layout's name, or None when the checkpoint has none for it."""
        module, _, part = name.rpartition(".")
        tensor = self._linear(module)
        if tensor is None:
            return None
        if part in ("k_scale", "v_scale"):
            stored = f"{tensor.module.removesuffix('.qkv')}.kv_cache_scaling_factor"
        else:
            stored = part_name(tensor.name, part, LAYOUT)
        folder = self._files[tensor.file]
        return float(_scales(folder, stored).ravel()[0]) if stored in folder.tensors else None

    def input_factor(self, module: str) -> F32 | None:
        """Return what a module's input is multiplied by, (in features,), put together from the ranks; or None.

        Raises ``TensorError`` for a factor that is not finite and above zero.
        """
        tensor = self._linear(module)
        if tensor is None or part_name(tensor.name, PRE_QUANT_SCALE, LAYOUT) not in self._files[tensor.file].tensors:
            return None
        name = f"{module}.weight"
        found = np.empty(self._shapes[name][-1], dtype=np.float32)
        for piece in self._ranks.first(name):
            folder, stored = self._files[piece.tensor.file], part_name(piece.tensor.name, PRE_QUANT_SCALE, LAYOUT)
            found[slice(*piece.part.columns)] = to_float32(_scales(folder, stored), folder.tensors[stored].dtype)
        return found

    def _linear(self, module: str) -> RankTensor | None:
        """Return a rank's tensor that a module lies in; all of them have the same static scales."""
        name = f"{module}.weight"
        return next(self._ranks.first(name)).tensor if name in self._ranks.pieces else None

    def number_format(self, name: str) -> str:
        """Return how a tensor is stored, ``plain`` or a quantised format as a profile names it."""
        return self._ranks.format_of(next(self._ranks.first(name)).tensor)

    def _values(self, piece: Piece, first: int, last: int) -> F32:
        """Return the numbers of some rows of a piece, (rows, columns)."""
        tensor, folder = piece.tensor, self._files[piece.tensor.file]
        begin, end, chosen = piece.row + first, piece.row + last, self._ranks.format_of(tensor)
        if chosen in GROUPED:
            return self._unpacked(tensor, begin, end)
        raw = _rows(folder, tensor.name, begin, end)
        if chosen == PLAIN:
            values = to_float32(raw, folder.tensors[tensor.name].dtype)
            bits = self._bits.get(tensor.fact.name) if tensor.fact else None
            return values if bits is None else as_built(values, bits)
        parts = {
            "weight": raw.view(np.uint8) if chosen == "fp8" else raw,
            "weight_scale": self._scale_rows(tensor, chosen, begin, end),
        }
        second = part_name(tensor.name, "weight_scale_2", LAYOUT)
        if second in folder.tensors:
            parts["weight_scale_2"] = _scales(folder, second)
        return _DECODERS[ENCODED_AS.get(chosen, chosen)](parts, "BF16")

    def _unpacked(self, tensor: RankTensor, begin: int, end: int) -> F32:
        """Return rows of four-bit codes times their scales; rows may begin and end in the middle of bytes."""
        folder, top, bottom = self._files[tensor.file], begin // IN_A_BYTE, -(-end // IN_A_BYTE)
        scale = part_name(tensor.name, "weight_scale", LAYOUT)
        parts = {
            "weight": _rows(folder, tensor.name, top, bottom).view(np.uint8),
            "weight_scale": _scales(folder, scale, top * IN_A_BYTE, bottom * IN_A_BYTE),
        }
        skipped = begin - top * IN_A_BYTE
        return _DECODERS["int4_awq"](parts, "BF16")[skipped : skipped + end - begin]

    def _scale_of(self, tensor: RankTensor, chosen: str) -> str:
        return part_name(tensor.name, "weight_scale", LAYOUT, chosen)

    def _scale_rows(self, tensor: RankTensor, chosen: str, begin: int, end: int) -> Raw:
        """Return the scales of some rows: theirs, or the one of their block."""
        folder, name = self._files[tensor.file], self._scale_of(tensor, chosen)
        if chosen == "fp8":
            return _scales(folder, name).ravel()[begin // (tensor.source.rows // tensor.blocks) :][:1]
        rows = _scales(folder, name, begin, end)
        return rows.ravel() if len(folder.tensors[name].shape) == 1 else rows


def as_built(weight: F32, bits: int) -> F32:
    """Return what is left of a rank's weight, (out, in), after ``trtllm-build`` rounded it to whole numbers.

    A row is divided by its largest magnitude over 2^(bits - 1), which itself has no code where it is positive. The
    scale is taken as float32; engines round it to their 16 bit.
    Source: NVIDIA/TensorRT-LLM, cutlass_preprocessors.cpp, symmetric_quantize.
    """
    most = 2 ** (bits - 1)
    scales = np.abs(weight).max(axis=-1, keepdims=True) / np.float32(most)
    quotients = np.divide(weight, scales, out=np.zeros_like(weight), where=scales != 0)
    away = np.trunc(quotients + np.copysign(np.float32(0.5), quotients))  # halves go away from zero, as in C
    found: F32 = np.clip(away, -most, most - 1) * scales
    return found


def _rows(folder: WeightFolder, name: str, begin: int, end: int) -> Raw:
    """Return rows of a stored tensor taken as a matrix."""
    rows, columns = matrix_shape(folder.tensors[name].shape)
    return folder.rows(Slice(name, (0, rows), (0, columns)), begin, end)


def _scales(folder: WeightFolder, name: str, begin: int = 0, end: int | None = None) -> Raw:
    """Return rows of scales or factors, all of them without an end; raises ``TensorError`` for one that is none."""
    found = folder.read(name) if end is None else _rows(folder, name, begin, end)
    wrong = wrong_scales(found, folder.tensors[name])
    if wrong.size:
        raise bad_scale(f"{name} of {folder.files[0].path.name}", wrong, "convert the checkpoint again")
    return found
