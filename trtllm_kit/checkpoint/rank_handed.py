"""Codes and scales that a Hugging Face folder holds already, cut into ranks bit by bit (``trtllm-build``).

An engine keeps one scale for q, k and v, and for gate and up of an expert. Where a folder has one scale for such a
group, as every folder that was made of rank files, its codes are handed on as they are; three scales are refused,
since codes would have to be rounded a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from trtllm_kit.checkpoint.formats import ENCODERS, is_calibrated
from trtllm_kit.checkpoint.formats.base import Part
from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.checkpoint.matrix import Matrix, Slice, matrix_shape
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.part_places import is_one_number, part_place
from trtllm_kit.checkpoint.rank_split import World
from trtllm_kit.checkpoint.rank_tensors import RankTensor, rank_tensors
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.errors import KitError, TensorError
from trtllm_kit.plan.ranks import LAYOUT
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import model_tensors

INPUT_SCALE = "input_scale"
ReadNumber = Callable[[str], float]
"""Returns a scale of the source that is one number, by its name."""
Shape = Callable[[RankTensor, str, tuple[int, ...]], tuple[int, ...]]
_SHOWN = 3


def value_shapes(model: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors by name, whatever they are packed in."""
    return {name: fact.shape for fact in model_tensors(model) for name in fact.names()}


def handed_on(world: World, tensor: RankTensor, chosen: str, shape_of: Shape) -> Iterator[TensorStep]:
    """Yield the parts of a rank's weight, each cut out of the source's parts as it lies there."""
    rows, columns = tensor.source.rows // tensor.blocks, tensor.source.columns
    for part in ENCODERS[chosen].parts(rows, columns):
        name, shape = part_name(tensor.name, part.name, LAYOUT, chosen), shape_of(tensor, part.name, part.shape)
        source = Matrix(tuple(_slices(world, tensor, chosen, part)))
        yield TensorStep(name, part.dtype, shape, tensor.file, source, chosen, part.name, as_stored=True)
    if is_calibrated(chosen):
        name, shape = part_name(tensor.name, INPUT_SCALE, LAYOUT), () if chosen == "nvfp4" else (1,)
        source = Matrix((_one(part_name(tensor.measured[0], INPUT_SCALE)),))
        yield TensorStep(name, "F32", shape, tensor.file, source, chosen, INPUT_SCALE, as_stored=True)


def _slices(world: World, tensor: RankTensor, chosen: str, part: Part) -> Iterator[Slice]:
    each = len(tensor.source.slices) // tensor.blocks
    if is_one_number(part.name, part.shape):
        yield from (_one(part_name(first.tensor, part.name)) for first in tensor.source.slices[::each])
        return
    for held in tensor.source.slices:
        values = matrix_shape(world.shapes[held.tensor])
        whole = next(one.shape for one in ENCODERS[chosen].parts(*values) if one.name == part.name)
        place = part_place(part.name, whole, values, held.rows, held.columns)
        yield Slice(part_name(held.tensor, part.name), *place)


def _one(name: str) -> Slice:
    return Slice(name, (0, 1), (0, 1), whole=True)


def require_one_scale(world: World, packed: Mapping[str, str], number: ReadNumber) -> Iterator[KitError]:
    """Yield an error for each group of weights that an engine keeps under one scale, and that have several."""
    seen: set[tuple[str, ...]] = set()
    for tensor in rank_tensors(world):
        chosen = packed.get(tensor.fact.name) if tensor.fact else None
        if chosen is None:
            continue
        for names in _groups(tensor, chosen):
            if names not in seen:
                seen.add(names)
                yield from _several(names, number)


def _groups(tensor: RankTensor, chosen: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of the scales that are one number in a rank: of each block, and of the input of all."""
    each = len(tensor.source.slices) // tensor.blocks
    ones = [part.name for part in ENCODERS[chosen].parts(128, 128) if not part.shape]
    for part in ones:
        for at in range(0, len(tensor.source.slices), each):
            block = dict.fromkeys(held.tensor for held in tensor.source.slices[at : at + each])
            yield tuple(part_name(name, part) for name in block)
    if is_calibrated(chosen):
        yield tuple(part_name(name, INPUT_SCALE) for name in tensor.measured)


def _several(names: Sequence[str], number: ReadNumber) -> Iterator[KitError]:
    values = {name: number(name) for name in names}
    if len(set(values.values())) > 1:
        shown = ", ".join(f"{value:g}" for value in list(values.values())[:_SHOWN])
        yield TensorError(
            f"{names[0]} and {len(names) - 1} more are not one number",
            why=f"they are {shown}{' ...' * (len(names) > _SHOWN)}, and an engine keeps one scale for all of them",
            hint="give the folder of the model's BF16 original, or set toolchain: llm-api",
        )


def given_cache_scales(
    tensor: RankTensor, parts: Sequence[str], stored: Mapping[str, StoredTensor], number: ReadNumber
) -> Iterator[TensorStep]:
    """Yield the scales of an FP8 cache: the larger of both and each its own, never below 1 as every maker has it."""
    _, key, value = (name.removesuffix(".weight") for name in tensor.measured)
    names: dict[str, tuple[str, ...]] = {"k_scale": (f"{key}.k_scale",), "v_scale": (f"{value}.v_scale",)}
    names["kv_scale"] = (*names["k_scale"], *names["v_scale"])
    module = tensor.module.removesuffix(".qkv")
    for part in parts:
        held = [name for name in names[part] if name in stored]
        largest = max(held, key=number, default=None)
        kept = largest is not None and number(largest) > 1.0
        source = Matrix((_one(largest),)) if kept and largest is not None else None
        name = f"{module}.{part.removesuffix('_scale')}_cache_scaling_factor"
        yield TensorStep(name, "F32", (1,), tensor.file, source, "fp8", part, as_stored=kept)
