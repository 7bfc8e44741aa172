"""Decides every tensor of an engine's checkpoint: TensorRT-LLM's own layout, one file a rank, for ``trtllm-build``.

Rounding is that of ModelOpt's ``export_tensorrt_llm_checkpoint``: FP8 codes are ``weight / scale`` in float32,
rounded once; q, k and v share the largest scale of the three, gate and up the larger of both, and every rank has the
same scale. Weight-only formats (INT8, INT4) lie in 16 bit: ``trtllm-build`` packs them for the GPU it runs on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from trtllm_kit.checkpoint.encoding import encoded_as
from trtllm_kit.checkpoint.formats import ENCODERS, is_calibrated
from trtllm_kit.checkpoint.formats.base import Part
from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE, SEARCHED
from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.checkpoint.layout import aligned, half_format
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rank_handed import (
    ReadNumber,
    given_cache_scales,
    handed_on,
    require_one_scale,
    value_shapes,
)
from trtllm_kit.checkpoint.rank_split import World
from trtllm_kit.checkpoint.rank_tensors import RankTensor, rank_tensors
from trtllm_kit.checkpoint.step import WEIGHT, TensorStep
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import MADE_BY_MODELOPT, tensor_formats
from trtllm_kit.plan.ranks import LAYOUT, RankOrder
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import Role
from trtllm_kit.upstream.trtllm_checkpoint import kv_scale_parts, rank_format, vocabulary_multiple

ENCODED_AS = {"fp8": "fp8_once"}
"""Where this layout rounds otherwise than the unified one."""


def rank_steps(
    order: RankOrder, stored: Mapping[str, StoredTensor], number: ReadNumber | None = None
) -> tuple[TensorStep, ...]:
    """Return every tensor of every rank, file by file; ``stored`` names the source's tensors.

    ``plan.rank_problems`` tells beforehand what cannot be laid out. ``number`` reads the scales of weights that come
    quantised; raises ``TensorError`` where those that an engine keeps as one differ.
    """
    given = number if order.formats.passed_through else None
    shapes = value_shapes(order.model) if given else {name: tensor.shape for name, tensor in stored.items()}
    world = World(order.model, order.split, shapes, vocabulary_multiple(order.formats.used, order.release))
    packed = packed_formats(order)
    if given:
        raise_all(list(require_one_scale(world, packed, given)), next(iter(stored.values())).file.parent)
    scales = kv_scale_parts(order.release) if order.formats.kv_cache != "bf16" else ()
    steps: dict[str, list[TensorStep]] = {}
    for tensor in rank_tensors(world):
        inside = steps.setdefault(tensor.file, [])
        chosen = packed.get(tensor.fact.name) if tensor.fact else None
        if chosen is None:
            inside.append(_plain(tensor, order.model, stored))
        elif given:
            inside += handed_on(world, tensor, chosen, _shape)
        elif chosen in MADE_BY_MODELOPT:
            inside += _searched(tensor, order, chosen)
        else:
            inside += _packed(tensor, ENCODED_AS.get(chosen, chosen))
        if tensor.fact is not None and tensor.fact.role is Role.QUERY:
            inside += (
                given_cache_scales(tensor, scales, stored, given)
                if given
                else _cache_scales(tensor, scales, order.formats)
            )
    return tuple(step for inside in steps.values() for step in aligned(inside))


def packed_formats(order: RankOrder) -> dict[str, PartFormat]:
    """Return the linear weights that do not lie in the files in 16 bit, with their formats, by ``TensorFact`` name."""
    return _formats_of_weights(order, packed=True)


def formats_of_the_build(order: RankOrder) -> dict[str, PartFormat]:
    """Return the linear weights that lie in the files in 16 bit and that ``trtllm-build`` packs, in the same way."""
    return _formats_of_weights(order, packed=False)


def _formats_of_weights(order: RankOrder, *, packed: bool) -> dict[str, PartFormat]:
    rows = {name: rank_format(name, order.release) for name in order.formats.used}
    wanted = {name for name, row in rows.items() if row is not None and row.packed is packed}
    return {
        tensor: chosen
        for number in range(len(order.model.layers))
        for tensor, chosen in tensor_formats(order.model, number, order.formats).items()
        if chosen in wanted
    }


def _plain(tensor: RankTensor, model: ModelSpec, stored: Mapping[str, StoredTensor]) -> TensorStep:
    kept = stored[tensor.source.slices[0].tensor].dtype
    dtype = "F32" if tensor.wide else half_format(model) if kept == "F32" else kept
    return TensorStep(tensor.name, dtype, tensor.shape, tensor.file, tensor.source)


def _packed(tensor: RankTensor, number_format: str) -> Iterator[TensorStep]:
    """Give a weight the parts of its format; each block of a stack of experts has a scale of its own."""
    encoder = ENCODERS[number_format]
    shared = (tensor.whole,) if encoder.needs_amax else ()
    rows, columns = tensor.source.rows // tensor.blocks, tensor.source.columns
    for part in encoder.parts(rows, columns):
        name = part_name(tensor.name, part.name, LAYOUT, number_format)
        shape = _shape(tensor, part.name, part.shape)
        yield TensorStep(
            name, part.dtype, shape, tensor.file, tensor.source, number_format, part.name, shared, blocks=tensor.blocks
        )
    if is_calibrated(number_format):
        name = part_name(tensor.name, "input_scale", LAYOUT)
        measured = _input_scales(tensor.measured)
        shape = () if number_format == "nvfp4" else (1,)
        yield TensorStep(name, "F32", shape, tensor.file, format=number_format, part="input_scale", measured=measured)


def _searched(tensor: RankTensor, order: RankOrder, chosen: PartFormat) -> Iterator[TensorStep]:
    """Give a weight the parts of a format that ModelOpt searches; codes of four bits lie two in a byte of I8."""
    shape = tensor.source.rows, tensor.source.columns
    key = encoded_as(chosen, shape, order.formats.group_size)
    factor = Part(PRE_QUANT_SCALE, half_format(order.model), (tensor.source.columns,))
    for part in (*SEARCHED[key](*shape), factor):
        name, dtype = part_name(tensor.name, part.name, LAYOUT), "I8" if part.name == WEIGHT else part.dtype
        yield TensorStep(name, dtype, part.shape or (1,), tensor.file, tensor.source, key, part.name)


@lru_cache(maxsize=1024)
def _input_scales(tensors: tuple[str, ...]) -> tuple[str, ...]:
    """Return what calibration calls the scales of some weights' inputs; every rank asks for the same ones."""
    return tuple(part_name(stored, "input_scale") for stored in tensors)


def _shape(tensor: RankTensor, part: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a part: that of one matrix, with the experts in front; a scalar of FP8 is a vector of one."""
    if part == WEIGHT:
        return (*tensor.shape[:-1], shape[-1])
    if part == "weight_scale" and not shape:
        return (1,) if tensor.blocks == 1 and len(tensor.shape) == 2 else (tensor.blocks, 1)
    return shape


def _cache_scales(tensor: RankTensor, parts: Sequence[str], formats: Formats) -> Iterator[TensorStep]:
    """Yield the scales of the KV cache: the larger of keys and values for both, and for later releases each its own."""
    _, key, value = (name.removesuffix(".weight") for name in tensor.measured)
    names: dict[str, tuple[str, ...]] = {"k_scale": (f"{key}.k_scale",), "v_scale": (f"{value}.v_scale",)}
    names["kv_scale"] = (*names["k_scale"], *names["v_scale"])
    module = tensor.module.removesuffix(".qkv")
    for part in parts:
        name = f"{module}.{part.removesuffix('_scale')}_cache_scaling_factor"
        known = names[part] if formats.has_kv_scales else ()
        kind = ENCODED_AS.get(formats.kv_cache, formats.kv_cache)
        yield TensorStep(name, "F32", (1,), tensor.file, format=kind, part=part, measured=known)
