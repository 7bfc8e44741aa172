"""Formats whose numbers are looked for by NVIDIA ModelOpt: what lies in a checkpoint, and how it is read.

``weight_scale`` is that of a group of input elements (``int4_awq``, ``w4a8_awq``) or of an output element
(``int8_sq``). The input is multiplied by ``pre_quant_scale`` (input elements, 16 bit) where there is one: ModelOpt
folds it into the norm in front where a norm feeds the layer, and ``weight`` holds ``W / pre_quant_scale``.
``weight_scale_2`` of ``w4a8_awq`` is that of the FP8 numbers that a kernel turns the codes into; ``weight_scale``
holds the whole factor. ModelOpt 0.47: INT4_AWQ_CFG, W4A8_AWQ_BETA_CFG, INT8_SMOOTHQUANT_CFG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trtllm_kit.checkpoint.formats import eight_bit, four_bit
from trtllm_kit.checkpoint.formats.base import Decoder, Part
from trtllm_kit.plan.formats import GROUP_SIZE
from trtllm_kit.spec.profile_formats import PartFormat

PRE_QUANT_SCALE = "pre_quant_scale"
Parts = Callable[[int, int], tuple[Part, ...]]

_ONE = ()


def _int4(group: int, *, fp8_input: bool) -> Parts:
    def parts(rows: int, columns: int) -> tuple[Part, ...]:
        more = (Part("weight_scale_2", "F32", _ONE), Part("input_scale", "F32", _ONE)) if fp8_input else ()
        return (*four_bit.Int4(group).parts(rows, columns), *more)

    return parts


def _int8_sq(rows: int, columns: int) -> tuple[Part, ...]:
    return Part("weight", "I8", (rows, columns)), Part("weight_scale", "F32", (rows,)), Part("input_scale", "F32", _ONE)


SEARCHED: Mapping[str, Parts] = {
    "int4_awq": _int4(GROUP_SIZE, fp8_input=False),
    "int4_awq_64": _int4(64, fp8_input=False),
    "w4a8_awq": _int4(GROUP_SIZE, fp8_input=True),
    "w4a8_awq_64": _int4(64, fp8_input=True),
    "int8_sq": _int8_sq,
}
"""The parts of a matrix, ``weight`` first, that are always there, by format and group size."""

FACTORED: frozenset[PartFormat] = frozenset({"int4_wo", "int4_awq", "w4a8_awq", "int8_sq"})
"""Formats, as a profile names them, beside whose weights a factor of the input may stand."""

SEARCHED_DECODERS: Mapping[str, Decoder] = {
    "int4_awq": four_bit.decode_int4_wo,
    "int4_awq_64": four_bit.decode_int4_wo,
    "w4a8_awq": four_bit.decode_int4_wo,
    "w4a8_awq_64": four_bit.decode_int4_wo,
    "int8_sq": eight_bit.decode_int8_wo,
}
"""They give ``W / pre_quant_scale``, since the factor belongs to the input."""
