"""The files of an engine's checkpoint, opened: which rank holds which numbers of a tensor, and in which format.

Nothing is read here but headers. ``rank_load`` makes float32 of it, ``unsharded`` the stored tensors of a Hugging Face
folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.checkpoint.header import StoredTensor, read_header
from trtllm_kit.checkpoint.matrix import Slice, matrix_shape
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rank_split import World
from trtllm_kit.checkpoint.rank_tensors import RankTensor, rank_tensors
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.step import PLAIN
from trtllm_kit.errors import KitError, TensorError
from trtllm_kit.plan.ranks import LAYOUT

_PACKED = {"F8_E4M3": ("fp8", "fp8_rowwise"), "U8": ("nvfp4",)}
"""Formats whose weights lie as such elements; which of them it is, the name of the scale beside them says."""
IN_A_BYTE = 2
"""Rows of four-bit codes that share the bytes of a row of I8, the even one in the lower halves."""


@dataclass(frozen=True)
class Piece:
    """Where a part of a stored tensor is: in this rank's tensor, from this row on."""

    tensor: RankTensor
    part: Slice
    row: int


class RankFiles:
    """The headers of all ranks, and for every tensor of the model the pieces that it is put together from."""

    def __init__(self, folder: Path, world: World, again: str = "convert the checkpoint again") -> None:
        """Read the header of every rank; raises ``TensorError`` with everything that is missing or of another shape.

        ``again`` is what to do about it. Raises ``WeightFileError`` and ``StorageError`` as well.
        """
        self.files: Mapping[str, WeightFolder] = {rank.file: _open(folder / rank.file) for rank in world.ranks}
        self.tensors = tuple(rank_tensors(world))
        self.pieces: dict[str, dict[Slice, list[Piece]]] = {}
        """By name of the model's tensor and the slice of it that a rank holds: all that hold it, the first first."""
        raise_all(list(self._problems(again)), folder)
        for tensor in self.tensors:
            self._note(tensor)

    def first(self, name: str) -> Iterator[Piece]:
        """Yield one piece for each slice of a tensor; what several ranks hold alike is taken from the first."""
        yield from (held[0] for held in self.pieces[name].values())

    def stored(self, tensor: RankTensor, part: str = "weight", number_format: str = "") -> StoredTensor | None:
        """Return what a rank's file holds of a weight's part, or None without one."""
        return self.files[tensor.file].tensors.get(part_name(tensor.name, part, LAYOUT, number_format))

    def format_of(self, tensor: RankTensor) -> str:
        """Return how a rank's tensor is stored, ``plain`` or a quantised format as a profile names it."""
        stored = self.files[tensor.file].tensors[tensor.name]
        if stored.dtype == "I8":
            return self._of_bytes(tensor, stored)
        known = _PACKED.get(stored.dtype, ())
        return next((name for name in known if self.stored(tensor, "weight_scale", name)), PLAIN)

    def _of_bytes(self, tensor: RankTensor, stored: StoredTensor) -> str:
        """Return the format of I8, as which some makers store e4m3 codes too: those have one scale for all rows."""
        if stored.shape != tensor.shape:
            return "w4a8_awq" if self.stored(tensor, "weight_scale_2") else "int4_awq"
        scale = self.stored(tensor, "weight_scale")
        rows, _ = matrix_shape(tensor.shape)
        one = scale is not None and scale.shape in ((1,), (tensor.blocks, 1)) and rows > tensor.blocks
        return "fp8" if one else "int8_sq"

    def _note(self, tensor: RankTensor) -> None:
        row = 0
        for part in tensor.source.slices:
            self.pieces.setdefault(part.tensor, {}).setdefault(part, []).append(Piece(tensor, part, row))
            row += part.shape[0]

    def _problems(self, again: str) -> Iterator[KitError]:
        for tensor in self.tensors:
            found = self.files[tensor.file].tensors.get(tensor.name)
            if found is None or found.shape not in _shapes(tensor, found.dtype):
                yield TensorError(
                    f"{tensor.name} of {tensor.file} is {'missing' if found is None else f'of shape {found.shape}'}",
                    why=f"the model gives this rank {list(tensor.shape)}",
                    hint=again,
                )


def _shapes(tensor: RankTensor, dtype: str) -> tuple[tuple[int, ...], ...]:
    """Return what the shape of a stored weight can be: halved where two codes of four bits lie in a byte."""
    shape = tensor.shape
    if dtype == "U8":
        return ((*shape[:-1], shape[-1] // 2),)
    return (shape, (shape[0] // IN_A_BYTE, *shape[1:])) if dtype == "I8" else (shape,)


def _open(path: Path) -> WeightFolder:
    header = read_header(path)
    return WeightFolder(path.parent, (header,), header.tensors)
