"""Reads an engine's checkpoint back into the tensors of its model, for the quality report and the reference runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtllm_kit.checkpoint.formats import DECODERS
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.checkpoint.matrix import Slice, matrix_shape
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rank_layout import ENCODED_AS
from trtllm_kit.checkpoint.rank_split import World
from trtllm_kit.checkpoint.rank_tensors import RankTensor, rank_tensors
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import PLAIN
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import KitError, TensorError
from trtllm_kit.plan.formats import FORMATS
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.ranks import LAYOUT
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import model_tensors

_PACKED = {"F8_E4M3": ("fp8", "fp8_rowwise"), "U8": ("nvfp4",)}
"""Formats whose weights lie as such elements; which of them it is, the name of the scale beside them says."""


@dataclass(frozen=True)
class _Piece:
    """Where a part of a stored tensor is: in this rank's tensor, from this row on."""

    tensor: RankTensor
    part: Slice
    row: int


class RankWeights:
    """The tensors of a model as float32, put together from the ranks' files."""

    def __init__(
        self, folder: Path, model: ModelSpec, split: Split, built_as: Mapping[str, PartFormat] | None = None
    ) -> None:
        """Read the header of every rank; raises ``TensorError`` with everything that is missing or of another shape.

        ``built_as`` has the format of what lies in 16 bit until ``trtllm-build`` packs it, by ``TensorFact`` name: its
        values are those of the engine.
        """
        self._bits = {name: FORMATS[number_format].bits for name, number_format in (built_as or {}).items()}
        shapes = {name: fact.shape for fact in model_tensors(model) for name in fact.names()}
        world = World(model, split, shapes)
        self._shapes = shapes
        self._files = {rank.file: _open(folder / rank.file) for rank in world.ranks}
        self._pieces: dict[str, dict[Slice, _Piece]] = {}
        self._measured: dict[str, RankTensor] = {}
        tensors = list(rank_tensors(world))
        raise_all(list(self._problems(tensors)), folder)
        for tensor in tensors:
            self._note(tensor)

    def tensor(self, name: str) -> F32:
        """Return a tensor as float32, multiplied by its scale when it is quantised."""
        found = np.empty(matrix_shape(self._shapes[name]), dtype=np.float32)
        for piece in self._pieces[name].values():
            rows, columns = slice(*piece.part.rows), slice(*piece.part.columns)
            if piece.part.shape[0]:
                found[rows, columns] = self._values(piece)
        return found.reshape(self._shapes[name])

    def scale(self, name: str) -> float | None:
        """Return a static scale by the unified layout's name, or None when the checkpoint has none for it."""
        module, _, part = name.rpartition(".")
        tensor = self._measured.get(f"{module}.weight")
        if tensor is None:
            return None
        if part in ("k_scale", "v_scale"):
            stored = f"{tensor.module.removesuffix('.qkv')}.kv_cache_scaling_factor"
        else:
            stored = part_name(tensor.name, part, LAYOUT)
        folder = self._files[tensor.file]
        return float(folder.read(stored).ravel()[0]) if stored in folder.tensors else None

    def input_factor(self, module: str) -> F32 | None:  # noqa: ARG002
        """Return None: no format of this layout that the kit makes has a factor of the input."""
        return None

    def number_format(self, name: str) -> str:
        """Return how a tensor is stored, ``plain`` or a quantised format as a profile names it."""
        return self._format_of(next(iter(self._pieces[name].values())).tensor)

    def _format_of(self, tensor: RankTensor) -> str:
        folder = self._files[tensor.file]
        known = _PACKED.get(folder.tensors[tensor.name].dtype, ())
        return next((name for name in known if self._scale_of(tensor, name) in folder.tensors), PLAIN)

    def _note(self, tensor: RankTensor) -> None:
        row = 0
        for part in tensor.source.slices:
            self._pieces.setdefault(part.tensor, {}).setdefault(part, _Piece(tensor, part, row))
            row += part.shape[0]
        for name in tensor.measured:
            self._measured.setdefault(name, tensor)

    def _problems(self, tensors: list[RankTensor]) -> Iterator[KitError]:
        for tensor in tensors:
            found = self._files[tensor.file].tensors.get(tensor.name)
            wanted = tensor.shape
            if found is not None and found.dtype == "U8":
                wanted = (*wanted[:-1], wanted[-1] // 2)
            if found is None or found.shape != wanted:
                yield TensorError(
                    f"{tensor.name} of {tensor.file} is {'missing' if found is None else f'of shape {found.shape}'}",
                    why=f"the model gives this rank {list(tensor.shape)}",
                    hint="convert the checkpoint again",
                )

    def _values(self, piece: _Piece) -> F32:
        """Return the numbers of a piece, (rows, columns)."""
        tensor, folder = piece.tensor, self._files[piece.tensor.file]
        begin, end = piece.row, piece.row + piece.part.shape[0]
        raw, chosen = _rows(folder, tensor.name, begin, end), self._format_of(tensor)
        if chosen == PLAIN:
            values = to_float32(raw, folder.tensors[tensor.name].dtype)
            bits = self._bits.get(tensor.fact.name) if tensor.fact else None
            return values if bits is None else as_built(values, bits)
        parts = {"weight": raw, "weight_scale": self._scale_rows(tensor, chosen, begin, end)}
        second = part_name(tensor.name, "weight_scale_2", LAYOUT)
        if second in folder.tensors:
            parts["weight_scale_2"] = folder.read(second)
        return DECODERS[ENCODED_AS.get(chosen, chosen)](parts, "BF16")

    def _scale_of(self, tensor: RankTensor, chosen: str) -> str:
        return part_name(tensor.name, "weight_scale", LAYOUT, chosen)

    def _scale_rows(self, tensor: RankTensor, chosen: str, begin: int, end: int) -> Raw:
        """Return the scales of some rows: theirs, or the one of their block."""
        folder, name = self._files[tensor.file], self._scale_of(tensor, chosen)
        if chosen == "fp8":
            return folder.read(name).ravel()[begin // (tensor.source.rows // tensor.blocks) :][:1]
        rows = _rows(folder, name, begin, end)
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


def _open(path: Path) -> WeightFolder:
    header = read_header(path)
    return WeightFolder(path.parent, (header,), header.tensors)


def _rows(folder: WeightFolder, name: str, begin: int, end: int) -> Raw:
    """Return rows of a stored tensor taken as a matrix."""
    rows, columns = matrix_shape(folder.tensors[name].shape)
    return folder.rows(Slice(name, (0, rows), (0, columns)), begin, end)
