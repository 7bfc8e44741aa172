"""Refuses weights that are not the model ``config.json`` describes, with every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from trtllm_kit.checkpoint.header import INDEX
from trtllm_kit.checkpoint.matrix import tile_ranges, whole
from trtllm_kit.checkpoint.names import DTYPE_NAMES
from trtllm_kit.checkpoint.packed import packed
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.errors import KitError, TensorError, WeightIndexError
from trtllm_kit.plan.quantization import plain_weights_advice
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import Role, TensorFact, model_tensors, prediction_tensors
from trtllm_kit.spec.vision import vision_of

_BUFFERS = (".rotary_emb.inv_freq", ".masked_bias")
"""Endings of tensors that hold constants, which old versions of transformers saved."""
_ValuesShape = Callable[[str], tuple[int, ...] | None]
"""The shape of a tensor's values by its name, or None when it cannot be read as it is."""
MOST_PROBLEMS = 1000
"""Problems that are looked for; with more the folder is another model, or config.json names absurd sizes."""
_MISSING_ADVICE = "download the model again, or correct config.json"


@dataclass(frozen=True)
class Extras:
    """Tensors beyond the text model's own."""

    copied: tuple[str, ...]
    """Parts the kit does not run and passes through (a vision tower, prediction layers)."""
    left_out: dict[str, str]
    """Tensors that change nothing, with the reason."""


def check_source(weights: WeightFolder, model: ModelSpec) -> Extras:
    """Check plain weights, as ``convert`` reads them; raises ``TensorError`` or ``WeightIndexError``."""
    problems: list[KitError] = [*_quantised(weights, model)]
    if problems:
        raise_all(problems[:1], weights.folder)
    wanted = {"F32", DTYPE_NAMES[model.dtype]}

    def values_shape(name: str) -> tuple[int, ...] | None:
        stored = weights.tensors.get(name)
        return stored.shape if stored is not None and stored.dtype in wanted else None

    problems += _differences(weights, model, values_shape)
    if len(problems) == MOST_PROBLEMS:
        raise_all(problems, weights.folder)
    known = {name for fact in model_tensors(model) for name in fact.names()}
    behind = {name for fact in prediction_tensors(model) for name in fact.names()}
    extras, refused = sort_extras(weights, model, known, behind.__contains__)
    raise_all([*problems, *refused], weights.folder)
    return extras


def check_loadable(weights: WeightFolder, model: ModelSpec) -> None:
    """Check plain or quantised weights, as the reference forward pass reads them; raises ``TensorError``."""

    def values_shape(name: str) -> tuple[int, ...] | None:
        found = packed(weights.tensors, name)
        return None if found is None else found.shape

    raise_all(_differences(weights, model, values_shape), weights.folder)


def _quantised(weights: WeightFolder, model: ModelSpec) -> Iterator[TensorError]:
    """Find an input that is not plain weights, by its config or its tensors."""
    plain = plain_weights_advice(model)
    if model.quantized_as is not None:
        yield TensorError(
            f"{weights.folder} is quantised already ({model.quantized_as})",
            why=f"its configuration says quant_method {model.quantized_as!r}",
            hint=plain,
        )
    for name in weights.tensors:
        if name.endswith((".qweight", "_weight_scale", ".weight_scale", ".weight_scale_inv", ".weight_packed")):
            yield TensorError(f"{weights.folder} is quantised already", why=f"it holds the tensor {name}", hint=plain)


def _differences(weights: WeightFolder, model: ModelSpec, values_shape: _ValuesShape) -> list[KitError]:
    all_names = ((fact, name) for fact in model_tensors(model) for name in fact.names())
    behind = ((fact, name) for fact in prediction_tensors(model) for name in fact.names() if name in weights.tensors)
    problems = (_difference(weights, model, fact, name, values_shape) for fact, name in chain(all_names, behind))
    return list(islice(filter(None, problems), MOST_PROBLEMS))


def _difference(
    weights: WeightFolder, model: ModelSpec, fact: TensorFact, name: str, values_shape: _ValuesShape
) -> KitError | None:
    stored, shape = weights.tensors.get(name), values_shape(name)
    if stored is None:
        return missing(weights, fact, name) if shape is None else None
    if (shape or stored.shape) != fact.shape:
        return TensorError(
            f"tensor {name} has shape {list(shape or stored.shape)}",
            why=f"config.json of this {model.architecture} gives it {list(fact.shape)}",
            hint="correct config.json; never change head counts to make shapes fit",
        )
    if shape is None:
        return TensorError(
            f"tensor {name} is stored as {stored.dtype}",
            why=f"config.json says the weights are {model.dtype} ({DTYPE_NAMES[model.dtype]}), and no scales beside it "
            "make it another format",
            hint="correct torch_dtype in config.json, or give the model's plain 16-bit weights",
        )
    return None


def missing(weights: WeightFolder, fact: TensorFact, name: str) -> KitError:
    """Return the error for a tensor that the model has and the folder does not."""
    if name in weights.unindexed:
        return WeightIndexError(
            f"tensor {name} is not in {INDEX}",
            why="config.json requires it, and it lies in a shard without an index entry",
            hint=f"download {INDEX} again from the revision of the shards",
        )
    if fact.role is Role.HEAD:
        return TensorError(
            f"tensor {name} is missing",
            why="config.json says tie_word_embeddings is false, so the output head is a tensor of its own",
            hint="download the model again, or set tie_word_embeddings to true if the head is the embedding",
        )
    return TensorError(f"tensor {name} is missing", why="config.json requires it", hint=_MISSING_ADVICE)


def sort_extras(
    weights: WeightFolder, model: ModelSpec, known: Set[str], passed_on: Callable[[str], bool]
) -> tuple[Extras, list[KitError]]:
    """Part what is not ``known`` into what is passed on, what is left out, and what is refused."""
    copied: list[str] = []
    unknown: list[str] = []
    left_out = dict.fromkeys(sorted(weights.unindexed - known), "not in the index")
    refused: list[KitError] = []
    for name in (name for name in weights.tensors if name not in known):
        if name.endswith(_BUFFERS):
            left_out[name] = "a constant the runtime computes"
        elif passed_on(name) or name.startswith(vision_of(model).prefixes):
            copied.append(name)
        elif name == model.head_name and _same_values(weights, name, f"{model.prefix}embed_tokens.weight"):
            left_out[name] = "tied to the embedding, and equal to it"
        elif name == model.head_name:
            refused.append(_untied(name))
        else:
            unknown.append(name)
    if unknown:
        refused.append(_unknown(unknown))
    return Extras(tuple(copied), left_out), refused


def _same_values(weights: WeightFolder, one: str, other: str) -> bool:
    if other not in weights.tensors or weights.tensors[one].nbytes != weights.tensors[other].nbytes:
        return False
    left, right = (whole(weights.tensors[name]) for name in (one, other))
    if (left.rows, left.columns) != (right.rows, right.columns):
        return False
    one_slice, other_slice = left.slices[0], right.slices[0]
    return all(
        np.array_equal(weights.rows(one_slice, *rows), weights.rows(other_slice, *rows)) for rows in tile_ranges(left)
    )


def _untied(name: str) -> TensorError:
    return TensorError(
        f"tensor {name} differs from the embedding",
        why="config.json says tie_word_embeddings is true, so one of the two would be dropped without a word",
        hint="set tie_word_embeddings to false in config.json, or remove the head if it is not meant",
    )


def _unknown(names: list[str]) -> TensorError:
    shown = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    return TensorError(
        f"{len(names)} tensors are not described by config.json: {shown}",
        why="leaving out weights that the model was trained with changes what it says",
        hint="compare config.json (layers, biases, experts) with the model's own repository",
    )
