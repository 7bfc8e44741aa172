"""A source that comes quantised: its tensors are held against its own configuration, and handed on bit by bit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from trtllm_kit.checkpoint.check import MOST_PROBLEMS, Extras, missing, sort_extras
from trtllm_kit.checkpoint.encoding import encoded_as
from trtllm_kit.checkpoint.formats import is_calibrated, profile_name
from trtllm_kit.checkpoint.formats.searched import FACTORED, PRE_QUANT_SCALE
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
from trtllm_kit.plan.formats import GROUP_SIZE
from trtllm_kit.plan.plan import QuantizationPlan
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import GROUPED
from trtllm_kit.spec.tensors import EXPERT, TensorFact, model_tensors

INPUT_SCALE = "input_scale"
_SCALES = (INPUT_SCALE, "weight_scale", "weight_scale_inv", "weight_scale_2", PRE_QUANT_SCALE)
_HALVES = ("BF16", "F16")
_MAGNITUDES = 0x77
"""The bits of two e2m1 codes in a byte that are no signs."""
_AGAIN = "download the model again, all its files from one revision"
_CACHE_SCALE = re.compile(r"layers\.\d+\.self_attn\.(\w+\.)?[kv]_scale$")


class Held(NamedTuple):
    """One tensor of the model, and how it is stored."""

    fact: TensorFact
    name: str
    wanted: str
    """The format its configuration gives it, ``plain`` for 16 bit."""
    form: str
    """What such a weight is stored as, a key of the decoders: a profile's format may have several."""
    found: Packed | None
    """None for one that is not there, or in no format."""


def check_stored(weights: WeightFolder, model: ModelSpec, formats: QuantizationPlan) -> Extras:
    """Check tensors, shapes and the value of every scale; raises ``TensorError`` with all problems at once."""
    _require_named(weights, model)
    held = list(_held(weights, model, formats))
    known = {tensor for one in held for tensor in _tensors_of(weights, one)}
    extras, refused = sort_extras(weights, model, known, _passed_on(model))
    scales = [name for one in held for part, name in _parts_of(weights, one).items() if part != WEIGHT]
    scales += [name for name in extras.copied if _CACHE_SCALE.search(name) or name.endswith(_SCALES)]
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
        _as_stored(weights.tensors[name], one.form, part)
        for one in _held(weights, model, formats)
        for part, name in _parts_of(weights, one).items()
    ]
    steps += [_as_stored(weights.tensors[name], PLAIN, WEIGHT) for name in extras.copied]
    return in_files(steps, shard_bytes)


def _as_stored(stored: StoredTensor, number_format: str, part: str) -> TensorStep:
    source = whole(stored)
    return TensorStep(stored.name, stored.dtype, stored.shape, "", source, number_format, part, as_stored=True)


def _held(weights: WeightFolder, model: ModelSpec, formats: QuantizationPlan) -> Iterator[Held]:
    chosen, size = weight_formats(model, formats), formats.formats.group_size
    for fact in model_tensors(model):
        for name in fact.names():
            wanted, found = chosen.get(name, PLAIN), packed(weights.tensors, name)
            form = wanted if wanted == PLAIN else encoded_as(wanted, fact.shape, size)
            if found is not None and _is_form_of(found.format, form):
                form = form if wanted in FACTORED else found.format
            yield Held(fact, name, wanted, form, found)


def _is_form_of(found: str, form: str) -> bool:
    """Whether a weight that lies as ``found`` can be ``form``: AWQ's codes and groups are those of plain INT4."""
    if profile_name(form) in FACTORED:
        return found == form.replace("int4_awq", "int4_wo")
    return profile_name(found) == profile_name(form)


def _parts_of(weights: WeightFolder, one: Held) -> Mapping[str, str]:
    """Return the stored tensors of one weight by part, with what calibration measured for its input."""
    if one.found is None:
        return {}
    expected = {INPUT_SCALE: is_calibrated(one.found.format), PRE_QUANT_SCALE: one.wanted in FACTORED}
    names = {part: part_name(one.name, part) for part, may_be in expected.items() if may_be}
    return {**one.found.parts, **{part: name for part, name in names.items() if name in weights.tensors}}


def _tensors_of(weights: WeightFolder, one: Held) -> Iterator[str]:
    """Yield what belongs to a weight, also where it is not sound: a problem is told once."""
    yield one.name
    yield from _parts_of(weights, one).values()
    factored = one.wanted in FACTORED
    yield from (part_name(one.name, part) for part in _SCALES if part != PRE_QUANT_SCALE or factored)


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
        if not _is_form_of(one.found.format, one.form):
            yield TensorError(
                f"tensor {one.name} is stored in {_in_words(one.found.format)}",
                why=f"the model's configuration says {_in_words(one.form)}, and a runtime would read it so",
                hint=_AGAIN,
            )
        elif one.found.shape != one.fact.shape:
            yield TensorError(
                f"tensor {one.name} holds values of shape {list(one.found.shape)}",
                why=f"config.json gives it {list(one.fact.shape)}",
                hint="correct config.json; never change head counts to make shapes fit",
            )
        yield from _misshapen_factor(weights, one)
        if is_calibrated(one.found.format) and INPUT_SCALE not in _parts_of(weights, one):
            yield TensorError(
                f"tensor {part_name(one.name, INPUT_SCALE)} is missing",
                why=f"{profile_name(one.found.format)} has one beside every weight",
                hint=_AGAIN,
            )


def _in_words(form: str) -> str:
    name = profile_name(form)
    size = form.removeprefix(f"{name}_") if name in GROUPED and form != name else GROUP_SIZE
    return f"{name} in groups of {size}" if name in GROUPED else name


def _misshapen_factor(weights: WeightFolder, one: Held) -> Iterator[KitError]:
    name = _parts_of(weights, one).get(PRE_QUANT_SCALE)
    if name is None:
        return
    stored, columns = weights.tensors[name], one.fact.shape[-1]
    if stored.dtype not in _HALVES or stored.shape != (columns,):
        yield TensorError(
            f"tensor {name} is {stored.dtype} {list(stored.shape)}",
            why=f"it is one 16-bit factor for each of {columns:,} input elements",
            hint=_AGAIN,
        )


def _unknown_form(weights: WeightFolder, stored: StoredTensor, one: Held) -> TensorError:
    module = one.name.removesuffix(".weight")
    beside = [
        f"{other.name.removeprefix(module).lstrip('._')} {other.dtype} {list(other.shape)}"
        for name in _tensors_of(weights, one)
        if name != one.name and (other := weights.tensors.get(name)) is not None
    ]
    wanted = "16 bit" if one.wanted == PLAIN else _in_words(one.form)
    return TensorError(
        f"tensor {one.name} is stored as {stored.dtype} {list(stored.shape)}",
        why=f"the model's configuration says {wanted}, and beside it stand {', '.join(beside) or 'no scales'}",
        hint=_AGAIN,
    )


def _wrong_values(weights: WeightFolder, scales: list[str], values: dict[str, Raw]) -> Iterator[KitError]:
    """Yield an error for each scale that is no positive number; what is one number alone is kept in ``values``."""
    for name in scales:
        matrix, stored, zero = whole(weights.tensors[name]), weights.tensors[name], True
        for begin, end in tile_ranges(matrix):
            raw = weights.rows(matrix.slices[0], begin, end)
            wrong = wrong_scales(raw, stored)
            if wrong.size:
                yield bad_scale(name, wrong, _AGAIN)
                break
            zero = zero and stored.dtype == "F8_E4M3" and not raw.any()
            if matrix.rows * matrix.columns == 1:
                values[name] = raw
        else:
            if zero:
                yield from _lost_weight(weights, name)


def _lost_weight(weights: WeightFolder, scale: str) -> Iterator[KitError]:
    """Yield an error for a weight whose blocks all have scale zero, unless its codes are zero as well."""
    names = [scale.removesuffix(end) for end in ("_scale", "_weight_scale") if scale.endswith(end)]
    found = next((weights.tensors[name] for name in names if name in weights.tensors), None)
    if found is None:  # it stands beside no weight's codes, so nothing says that 0 is right
        yield bad_scale(scale, weights.read(scale), _AGAIN)
        return
    codes = whole(found)
    for begin, end in tile_ranges(codes):
        if (weights.rows(codes.slices[0], begin, end) & _MAGNITUDES).any():
            yield TensorError(
                f"scale {scale} is 0 for every block",
                why="its weight holds codes other than 0, and each of them would be read as 0",
                hint=_AGAIN,
            )
            return


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
