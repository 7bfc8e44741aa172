"""Tells which number format a stored weight has, from its own dtype and the scales that stand beside it.

The tensors say it of every weight by itself, whatever the configuration files say: layers may differ, and a weight
whose scales are missing or have another shape is found before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trtllm_kit.checkpoint.formats import ENCODERS
from trtllm_kit.checkpoint.formats.base import Part
from trtllm_kit.checkpoint.formats.eight_bit import MX_BLOCK
from trtllm_kit.checkpoint.formats.searched import SEARCHED
from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.checkpoint.matrix import matrix_shape
from trtllm_kit.checkpoint.names import DTYPE_NAMES, part_name
from trtllm_kit.checkpoint.step import PLAIN, WEIGHT

_MATRIX, _STACK = 2, 3
_AXES = {"fp8": (0, 1, 2, 3), "nvfp4_turned": (_STACK,)}
"""How many axes a weight has, where it is not a matrix alone."""
_ALIASES = {"weight_scale_inv": "weight_scale"}
"""What ModelOpt calls the scales of FP8 blocks, which are DeepSeek's ``weight_scale_inv``."""
_BY_DTYPE = {
    "F8_E4M3": ("fp8", "fp8_rowwise", "fp8_block", "mxfp8"),
    "I8": ("int8_sq", "int8_wo"),
    "U8": ("nvfp4", "w4a8_awq", "w4a8_awq_64", "int4_wo", "int4_wo_64", "nvfp4_turned"),
}
"""Formats whose codes are stored so; of one weight their scales differ in dtype or in shape, or one has more of them.

``int4_awq`` lies there as ``int4_wo`` does: what tells them apart is a factor of the input, which not each layer has.
"""


MXFP4_BLOCKS = "_blocks"
"""What the name of MXFP4 codes ends in; no tensor has the weight's own name."""
_FOUR_AXES = 4
"""Of MXFP4 codes, and of ModelOpt's scales of FP8 blocks, (rows, 1, columns, 1)."""


class Packed(NamedTuple):
    """How a weight is stored."""

    format: str
    """``plain``, or a key of ``formats.DECODERS``."""
    shape: tuple[int, ...]
    """Of the values."""
    parts: Mapping[str, str]
    """The stored tensor of each part that its decoder wants."""


def packed(tensors: Mapping[str, StoredTensor], name: str) -> Packed | None:
    """Return how the weight ``name`` is stored, or None when no format stores it with the scales that are there."""
    stored = tensors.get(name)
    if stored is None:
        return _mxfp4(tensors, name)
    if stored.dtype in DTYPE_NAMES.values():
        return Packed(PLAIN, stored.shape, {WEIGHT: name})
    return next(_fitting(tensors, stored), None)


def parts_of(number_format: str, shape: tuple[int, ...]) -> tuple[Part, ...]:
    """Return the parts of a weight of any shape; those of a stack of matrices have its first axis in front."""
    if len(shape) != _STACK:
        return _matrix_parts(number_format, *matrix_shape(shape))
    inner = _matrix_parts(number_format, *shape[1:])
    return tuple(part._replace(shape=(shape[0], *part.shape)) if part.shape else part for part in inner)


def _matrix_parts(number_format: str, rows: int, columns: int) -> tuple[Part, ...]:
    if number_format in SEARCHED:
        return SEARCHED[number_format](rows, columns)
    return ENCODERS[number_format].parts(rows, columns)


def _mxfp4(tensors: Mapping[str, StoredTensor], name: str) -> Packed | None:
    """Return gpt-oss's experts of one projection, each (input, output): stored turned, in blocks of 32 inputs."""
    blocks, scales = tensors.get(name + MXFP4_BLOCKS), tensors.get(f"{name}_scales")
    if blocks is None or scales is None or {blocks.dtype, scales.dtype} != {"U8"} or len(blocks.shape) != _FOUR_AXES:
        return None
    if blocks.shape[:-1] != scales.shape or 2 * blocks.shape[-1] != MX_BLOCK:
        return None
    experts, outputs, count = scales.shape
    return Packed("mxfp4", (experts, count * MX_BLOCK, outputs), {WEIGHT: blocks.name, "weight_scale": scales.name})


def _fitting(tensors: Mapping[str, StoredTensor], stored: StoredTensor) -> Iterator[Packed]:
    for number_format in _BY_DTYPE.get(stored.dtype, ()):
        shape = _values_shape(number_format, stored.shape)
        if len(shape) not in _AXES.get(number_format, (_MATRIX,)):
            continue
        parts = _parts(tensors, stored, number_format, shape)
        if parts is not None:
            yield Packed(number_format, shape, parts)


def _values_shape(number_format: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the values that a packed weight of ``shape`` holds: two codes lie in a byte of four bits."""
    if not shape:
        return shape
    if number_format == "nvfp4":
        return (*shape[:-1], 2 * shape[-1])
    if number_format == "nvfp4_turned" or number_format.startswith(("int4", "w4a8")):
        return (*shape[:-2], 2 * shape[-2], shape[-1]) if len(shape) >= _MATRIX else shape
    return shape


def _parts(
    tensors: Mapping[str, StoredTensor], stored: StoredTensor, number_format: str, shape: tuple[int, ...]
) -> dict[str, str] | None:
    """Return the tensor of each part, None when one is missing or is not what the format has."""
    found = {WEIGHT: stored.name}
    for part in parts_of(number_format, shape)[1:]:
        names = (part_name(stored.name, alias) for alias in (part.name, _ALIASES.get(part.name, part.name)))
        fits = [name for name in names if name in tensors and _is(tensors[name], part)]
        if not fits:
            return None
        found[part.name] = fits[0]
    return found


def _is(stored: StoredTensor, part: Part) -> bool:
    """Whether a tensor can be a part; one number may have an axis or none, and ModelOpt's scales of blocks four."""
    shape = stored.shape or (1,)
    if part.name in _ALIASES and len(shape) == _FOUR_AXES and shape[1] == shape[3] == 1:
        shape = shape[::2]
    return (stored.dtype, shape) == (part.dtype, part.shape or (1,))
