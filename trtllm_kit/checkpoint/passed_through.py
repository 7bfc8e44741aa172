"""A source that comes quantised: its tensors are held against its own configuration, and handed on bit by bit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from trtllm_kit.checkpoint.check import MOST_PROBLEMS, Extras, missing, sort_extras
from trtllm_kit.checkpoint.formats import is_calibrated, profile_name
from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.checkpoint.layout import in_files, scale_partners, weight_formats
from trtllm_kit.checkpoint.matrix import tile_ranges, whole
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.packed import Packed, packed
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import PLAIN, WEIGHT, TensorStep
from trtllm_kit.checkpoint.stored_weights import bad_scale, wrong_scales
from trtllm_kit.errors import KitError, TensorError
from trtllm_kit.plan.plan import QuantizationPlan
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import EXPERT, TensorFact, model_tensors

INPUT_SCALE = "input_scale"
_AGAIN = "download the model again, all its files from one revision"
_CACHE_SCALE = re.compile(r"layers\.\d+\.self_attn\.(\w+\.)?[kv]_scale$")


class Held(NamedTuple):
    """One tensor of the model, and how it is stored."""

    fact: TensorFact
    name: str
    wanted: str
    """The format its configuration gives it, ``plain`` for 16 bit."""
    found: Packed | None
    """None for one that is not there, or in no format."""


def check_stored(weights: WeightFolder, model: ModelSpec, formats: QuantizationPlan) -> Extras:
    """Check tensors, shapes and the value of every scale; raises ``TensorError`` with all problems at once."""
    _require_named(weights, model)
    held = list(_held(weights, model, formats))
    known = {tensor for one in held for tensor in _tensors_of(weights, one)}
    extras, refused = sort_extras(weights, model, known, _passed_on(model))
    scales = [name for one in held for part, name in _parts_of(weights, one).items() if part != WEIGHT]
    scales += [name for name in extras.copied if _CACHE_SCALE.search(name)]
    values: dict[str, Raw] = {}
    problems: list[KitError] = list(islice(_differences(weights, held), MOST_PROBLEMS))
    problems += islice(_wrong_values(weights, scales, values), MOST_PROBLEMS)
    problems += islice(_apart(model, weight_formats(model, formats), values), MOST_PROBLEMS)
    raise_all([*problems, *refused], weights.folder)
    return extras


def _require_named(weights: WeightFolder, model: ModelSpec) -> None:
    """Raise ``TensorError`` where so many tensors are missing that the folder is another model."""
    facts = ((fact, name) for fact in model_tensors(model) for name in fact.names())
    tensors = weights.tensors
    absent = (missing(weights, *one) for one in facts if one[1] not in tensors and packed(tensors, one[1]) is None)
    found = list(islice(absent, MOST_PROBLEMS))
    if len(found) == MOST_PROBLEMS:
        raise_all(found, weights.folder)


def stored_steps(
    model: ModelSpec, formats: QuantizationPlan, weights: WeightFolder, extras: Extras, shard_bytes: int
) -> tuple[TensorStep, ...]:
    """Return every tensor of the output in file order, each as it is stored; ``check_stored`` comes first."""
    steps = [
        _as_stored(weights.tensors[name], one.found.format if one.found else PLAIN, part)
        for one in _held(weights, model, formats)
        for part, name in _parts_of(weights, one).items()
    ]
    steps += [_as_stored(weights.tensors[name], PLAIN, WEIGHT) for name in extras.copied]
    return in_files(steps, shard_bytes)


def _as_stored(stored: StoredTensor, number_format: str, part: str) -> TensorStep:
    source = whole(stored)
    return TensorStep(stored.name, stored.dtype, stored.shape, "", source, number_format, part, as_stored=True)


def _held(weights: WeightFolder, model: ModelSpec, formats: QuantizationPlan) -> Iterator[Held]:
    chosen = weight_formats(model, formats)
    for fact in model_tensors(model):
        for name in fact.names():
            yield Held(fact, name, chosen.get(name, PLAIN), packed(weights.tensors, name))


def _parts_of(weights: WeightFolder, one: Held) -> Mapping[str, str]:
    """Return the stored tensors of one weight by part, with what calibration measured for its input."""
    if one.found is None:
        return {}
    scale = part_name(one.name, INPUT_SCALE)
    measured = {INPUT_SCALE: scale} if is_calibrated(one.found.format) and scale in weights.tensors else {}
    return {**one.found.parts, **measured}


def _tensors_of(weights: WeightFolder, one: Held) -> Iterator[str]:
    """Yield what belongs to a weight, also where it is not sound: a problem is told once."""
    yield one.name
    yield from _parts_of(weights, one).values()
    yield from (
        part_name(one.name, part) for part in (INPUT_SCALE, "weight_scale", "weight_scale_inv", "weight_scale_2")
    )


def _passed_on(model: ModelSpec) -> Callable[[str], bool]:
    """Return whether a tensor is of the prediction layers, or a scale of the KV cache."""
    first = len(model.layers)
    behind = tuple(f"{model.prefix}layers.{first + more}." for more in range(model.prediction_layers))
    return lambda name: name.startswith(behind) or _CACHE_SCALE.search(name) is not None


def _differences(weights: WeightFolder, held: list[Held]) -> Iterator[KitError]:
    for one in held:
        if one.found is None:
            stored = weights.tensors.get(one.name)
            yield missing(weights, one.fact, one.name) if stored is None else _unknown_form(weights, stored, one)
            continue
        if profile_name(one.found.format) != one.wanted:
            yield TensorError(
                f"tensor {one.name} is stored in {profile_name(one.found.format)}",
                why=f"the model's configuration says {one.wanted}, and a runtime would read it so",
                hint=_AGAIN,
            )
        elif one.found.shape != one.fact.shape:
            yield TensorError(
                f"tensor {one.name} holds values of shape {list(one.found.shape)}",
                why=f"config.json gives it {list(one.fact.shape)}",
                hint="correct config.json; never change head counts to make shapes fit",
            )
        if is_calibrated(one.found.format) and INPUT_SCALE not in _parts_of(weights, one):
            yield TensorError(
                f"tensor {part_name(one.name, INPUT_SCALE)} is missing",
                why=f"{profile_name(one.found.format)} has one beside every weight",
                hint=_AGAIN,
            )


def _unknown_form(weights: WeightFolder, stored: StoredTensor, one: Held) -> TensorError:
    module = one.name.removesuffix(".weight")
    beside = [
        f"{other.name.removeprefix(module).lstrip('._')} {other.dtype} {list(other.shape)}"
        for name in _tensors_of(weights, one)
        if name != one.name and (other := weights.tensors.get(name)) is not None
    ]
    wanted = "16 bit" if one.wanted == PLAIN else one.wanted
    return TensorError(
        f"tensor {one.name} is stored as {stored.dtype} {list(stored.shape)}",
        why=f"the model's configuration says {wanted}, and beside it stand {', '.join(beside) or 'no scales'}",
        hint=_AGAIN,
    )


def _wrong_values(weights: WeightFolder, scales: list[str], values: dict[str, Raw]) -> Iterator[KitError]:
    """Yield an error for each scale that is no positive number; what is one number alone is kept in ``values``."""
    for name in scales:
        matrix = whole(weights.tensors[name])
        for begin, end in tile_ranges(matrix):
            raw = weights.rows(matrix.slices[0], begin, end)
            wrong = wrong_scales(raw, weights.tensors[name])
            if wrong.size:
                yield bad_scale(name, wrong)
                break
            if matrix.rows * matrix.columns == 1:
                values[name] = raw


def _apart(model: ModelSpec, chosen: Mapping[str, str], values: Mapping[str, Raw]) -> Iterator[KitError]:
    """Yield the NVFP4 weights that the runtime fuses, and whose scales of the whole are not one number."""
    routed = {name for fact in model_tensors(model) if EXPERT in fact.name for name in fact.names()}
    for name, partners in scale_partners(model, chosen).items():
        if chosen[name] != "nvfp4":
            continue
        for part in ("weight_scale_2",) if name in routed else ("weight_scale_2", INPUT_SCALE):
            group = {part_name(one, part): values.get(part_name(one, part)) for one in sorted((name, *partners))}
            numbers = {scale: float(raw.ravel()[0]) for scale, raw in group.items() if raw is not None}
            if name == min(name, *partners) and len(set(numbers.values())) > 1:
                found = ", ".join(f"{one:g}" for one in numbers.values())
                yield TensorError(
                    f"{' and '.join(numbers)} differ",
                    why=f"they are {found}, and the runtime keeps one for all",
                    hint="export the model again with NVIDIA ModelOpt, which makes them one",
                )
