"""From the files of ranks to the tensors of a Hugging Face folder: which blocks each is put together from.

The geometry is that of the writing side (``rank_tensors``), read the other way round; only headers are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trtllm_kit.checkpoint.formats import is_calibrated, profile_name
from trtllm_kit.checkpoint.formats.base import Part
from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE
from trtllm_kit.checkpoint.layout import half_format
from trtllm_kit.checkpoint.matrix import Slice, matrix_shape
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.packed import parts_of
from trtllm_kit.checkpoint.part_places import Place, is_one_number, part_place
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rank_files import Piece, RankFiles
from trtllm_kit.checkpoint.rank_tensors import RankTensor
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import PLAIN, WEIGHT
from trtllm_kit.checkpoint.unsharded import AGAIN, Block, Copy, Decoded, Joined
from trtllm_kit.errors import FormatNotMade, KitError, TensorError
from trtllm_kit.plan.ranks import LAYOUT
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import GROUP_SIZES, GROUPED
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors, model_tensors

_INPUT_SCALE = "input_scale"
_CACHE_PARTS = ("k_scale", "v_scale")


class Whole(NamedTuple):
    """What the ranks hold of a model."""

    joined: dict[str, Joined]
    """By Hugging Face name, weights and what stands beside them; of the KV cache nothing."""
    formats: dict[str, str]
    """Format of every weight that is not plain, by its Hugging Face name; with ``_64`` for groups of 64."""
    cache: dict[str, Joined]
    """Scales of the KV cache, where there are any."""
    decoded: tuple[str, ...]
    """Weights of row-wise FP8 that are brought back in 16 bit, since each rank has scales of its own."""


def unshard(ranks: RankFiles, model: ModelSpec) -> Whole:
    """Find the blocks of every tensor; raises ``TensorError`` or ``FormatNotMade`` with all problems at once."""
    joined: dict[str, Joined] = {}
    formats: dict[str, str] = {}
    problems: list[KitError] = []
    for fact in model_tensors(model):
        for name in fact.names():
            try:
                form, made = _tensor(ranks, fact, name, half_format(model))
            except KitError as error:
                problems.append(error)
                continue
            problems += filter(None, map(_hole, made))
            joined |= {one.name: one for one in made}
            formats |= {} if form == PLAIN else {name: form}
    distinct = {str(problem): problem for problem in problems}  # q, k and v lie in one tensor
    raise_all(list(distinct.values()), next(iter(ranks.files.values())).folder)
    decoded = tuple(name for name, one in joined.items() if isinstance(one, Decoded))
    return Whole(joined, formats, {one.name: one for one in _cache_scales(ranks, model)}, decoded)


def _hole(one: Joined) -> TensorError | None:
    """Return the error for a tensor of which the ranks do not hold every number, or None."""
    rows, columns = matrix_shape(one.shape)
    held = sum((place.rows[1] - place.rows[0]) * (place.columns[1] - place.columns[0]) for place, _ in one.blocks)
    if held == rows * columns:
        return None
    return TensorError(
        f"the ranks hold {held:,} numbers of {one.name}",
        why=f"it has {rows:,} x {columns:,}, which this count of ranks does not share evenly",
        hint="compare tp_size and the counts of heads in config.json with the command that made the checkpoint",
    )


def _tensor(ranks: RankFiles, fact: TensorFact, name: str, half: str) -> tuple[str, list[Joined]]:
    """Return the format of a tensor, and it with its parts; ``half`` is that of what comes back in 16 bit."""
    pieces = [piece for held in ranks.pieces[name].values() for piece in held]
    form = _one_form(ranks, name, pieces)
    if form == PLAIN:
        return form, [_plain(ranks, fact, name, pieces)]
    made = [_part(ranks, fact, name, pieces, form, part) for part in _parts(ranks, fact, pieces[0].tensor, form)]
    if form == "fp8_rowwise" and _scaled_apart(made[1]):
        return PLAIN, [Decoded(name, half, fact.shape, WEIGHT, made[0].blocks)]
    return form, made


def _scaled_apart(scales: Joined) -> bool:
    """Whether ranks that hold other columns of the same rows have other scales for them; reads the scales."""
    return any(
        not np.array_equal(first, _rows_of(other, block.place))
        for block in scales.blocks
        for first in [_rows_of(block.copies[0], block.place)]
        for other in block.copies[1:]
    )


def _rows_of(copy: Copy, place: Place) -> Raw:
    """Return a rank's numbers of a vector over the rows."""
    count = place.rows[1] - place.rows[0]
    return copy.folder.rows(Slice(copy.name, (0, copy.row + count), (0, 1)), copy.row, copy.row + count)


def _one_form(ranks: RankFiles, name: str, pieces: list[Piece]) -> str:
    """Return the format of all pieces; raises ``TensorError`` where ranks differ, ``FormatNotMade`` for odd groups."""
    found: dict[str, RankTensor] = {}
    for piece in pieces:
        found.setdefault(_form(ranks, piece.tensor), piece.tensor)
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise TensorError(
            f"{name} is {one} in {first.file} and {other} in {second.file}",
            why="the ranks of one checkpoint hold a weight in one format",
            hint=AGAIN,
        )
    return next(iter(found))


def _form(ranks: RankFiles, tensor: RankTensor) -> str:
    form = ranks.format_of(tensor)
    scales = ranks.stored(tensor, "weight_scale")
    if form not in GROUPED or scales is None:
        return form
    size = tensor.source.columns // max(scales.shape[-1], 1)
    if size not in GROUP_SIZES:
        raise FormatNotMade(
            f"{tensor.name} of {tensor.file} has groups of {size}",
            why=f"scales are {list(scales.shape)} for {tensor.source.columns:,} inputs, and groups of "
            f"{' or '.join(map(str, GROUP_SIZES))} are read",
            hint="migrate from the model's 16-bit weights",
        )
    return form if size == GROUP_SIZES[0] else f"{form}_{size}"


def _plain(ranks: RankFiles, fact: TensorFact, name: str, pieces: list[Piece]) -> Joined:
    stored = {piece.tensor.file: ranks.files[piece.tensor.file].tensors[piece.tensor.name] for piece in pieces}
    dtypes = {one.dtype: file for file, one in reversed(stored.items())}
    if len(dtypes) > 1:
        named = " and ".join(f"{dtype} in {file}" for dtype, file in dtypes.items())
        raise TensorError(f"{name} is {named}", why="the ranks of one checkpoint hold a tensor alike", hint=AGAIN)
    dtype = next(iter(dtypes))
    if dtype not in ("BF16", "F16", "F32"):
        raise TensorError(
            f"{pieces[0].tensor.name} is stored as {dtype}",
            why="the scales beside it are of no format the kit reads",
            hint="migrate from the model's 16-bit weights",
        )
    places = [(Place(piece.part.rows, piece.part.columns), _copy(ranks, piece, piece.tensor.name)) for piece in pieces]
    return Joined(name, dtype, fact.shape, WEIGHT, _blocks(places))


def _copy(ranks: RankFiles, piece: Piece, name: str, row: int | None = None) -> Copy:
    return Copy(ranks.files[piece.tensor.file], name, piece.row if row is None else row)


def _blocks(places: list[tuple[Place, Copy]]) -> tuple[Block, ...]:
    """Join the copies of each place."""
    found: dict[Place, dict[tuple[str, str, int], Copy]] = {}
    for place, copy in places:
        found.setdefault(place, {})[copy.file, copy.name, copy.row] = copy
    return tuple(Block(place, tuple(copies.values())) for place, copies in found.items())


def _parts(ranks: RankFiles, fact: TensorFact, tensor: RankTensor, form: str) -> Iterator[Part]:
    """Yield the parts of a weight in a Hugging Face folder, with what calibration and ModelOpt's search add."""
    parts = parts_of(form, fact.shape)
    yield from parts
    if is_calibrated(form) and _INPUT_SCALE not in {part.name for part in parts}:
        yield Part(_INPUT_SCALE, "F32", ())
    factor = ranks.stored(tensor, PRE_QUANT_SCALE)
    if factor is not None:
        yield Part(PRE_QUANT_SCALE, factor.dtype, fact.shape[-1:])


def _part(ranks: RankFiles, fact: TensorFact, name: str, pieces: list[Piece], form: str, part: Part) -> Joined:
    values, places = matrix_shape(fact.shape), []
    for piece in pieces:
        place = part_place(part.name, part.shape, values, piece.part.rows, piece.part.columns)
        places.append((place, _copy_of_part(ranks, piece, form, part)))
    return Joined(part_name(name, part.name), part.dtype, part.shape, part.name, _blocks(places))


def _copy_of_part(ranks: RankFiles, piece: Piece, form: str, part: Part) -> Copy:
    """Return where a rank has its share of a part; raises ``TensorError`` for one that is missing or misshapen."""
    tensor = piece.tensor
    name, stored = _rank_part(ranks, tensor, form, part)
    rows, columns = matrix_shape(tensor.shape)
    if is_one_number(part.name, part.shape):
        each = rows // tensor.blocks
        return _copy(ranks, piece, name, piece.row // each if math.prod(stored) > 1 else 0)
    if part.name == PRE_QUANT_SCALE:
        return _copy(ranks, piece, name, 0)
    inner = part_place(part.name, stored, (rows, columns), (piece.row, piece.row), (0, 0))
    return _copy(ranks, piece, name, inner.rows[0])


def _rank_part(ranks: RankFiles, tensor: RankTensor, form: str, part: Part) -> tuple[str, tuple[int, ...]]:
    """Return name and shape of a rank's part."""
    profile = profile_name(form)
    name = part_name(tensor.name, part.name, LAYOUT, profile)
    found = ranks.files[tensor.file].tensors.get(name)
    if found is None:
        raise TensorError(
            f"{name} of {tensor.file} is missing",
            why=f"{profile} weights have it, and {tensor.name} is one",
            hint=AGAIN,
        )
    wanted = _rank_shapes(tensor, form, part)
    if found.shape not in wanted:
        raise TensorError(
            f"{name} of {tensor.file} is of shape {list(found.shape)}",
            why=f"{profile} of {list(tensor.shape)} has {' or '.join(str(list(shape)) for shape in wanted)}",
            hint=AGAIN,
        )
    return name, found.shape


def _rank_shapes(tensor: RankTensor, form: str, part: Part) -> tuple[tuple[int, ...], ...]:
    rows, columns = matrix_shape(tensor.shape)
    if part.name == WEIGHT:  # whose shape was looked at when the files were opened
        width = columns // 2 if form == "nvfp4" else columns
        height = rows // 2 if form.startswith(("int4", "w4a8")) else rows
        return ((*tensor.shape[:-1], width), (height, width))
    if part.name == PRE_QUANT_SCALE:
        return ((columns,),)
    if is_one_number(part.name, part.shape):
        of_each = ((tensor.blocks, 1),) if tensor.blocks > 1 or len(tensor.shape) > 2 else ()
        return ((1,), (), *of_each)
    shape = next(one.shape for one in parts_of(form, (rows, columns)) if one.name == part.name)
    return (shape,)


def _cache_scales(ranks: RankFiles, model: ModelSpec) -> Iterator[Joined]:
    """Yield the scales of keys and values of each layer: each its own, or the one for both."""
    for number in range(len(model.layers)):
        facts = {fact.role: fact for fact in layer_tensors(model, number) if not fact.is_bias}
        pieces = [piece for held in ranks.pieces[facts[Role.QUERY].name].values() for piece in held]
        for part, role in zip(_CACHE_PARTS, (Role.KEY, Role.VALUE), strict=True):
            places = [(Place((0, 1), (0, 1)), copy) for piece in pieces if (copy := _cache_copy(ranks, piece, part))]
            name = f"{facts[role].name.removesuffix('.weight')}.{part}"
            if len(places) not in (0, len(pieces)):
                raise TensorError(
                    f"{name} is in {len(places)} of {len(pieces)} ranks of its stage",
                    why="every rank keeps a part of the cache, and reads the scale of its numbers",
                    hint=AGAIN,
                )
            if places:
                yield Joined(name, "F32", (), part, _blocks(places))


def _cache_copy(ranks: RankFiles, piece: Piece, part: str) -> Copy | None:
    module = piece.tensor.module.removesuffix(".qkv")
    names = (f"{module}.{one}_cache_scaling_factor" for one in (part.removesuffix("_scale"), "kv"))
    held = ranks.files[piece.tensor.file].tensors
    name = next((name for name in names if name in held), None)
    return None if name is None else _copy(ranks, piece, name, 0)
