"""Scales that several weights share since an engine keeps one for all of them: what each has now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.unsharded import Unsharded
from trtllm_kit.plan.quantization import module_of
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import EXPERT, Role, layer_tensors

_OF_A_MATRIX = {"fp8": "weight_scale", "nvfp4": "weight_scale_2", "w4a8_awq": "weight_scale_2"}
"""The part that is one number for a whole matrix, by format."""
_GROUPS = ((Role.QUERY, Role.KEY, Role.VALUE), (Role.GATE, Role.UP))


def shared_scales(model: ModelSpec, weights: Unsharded, forms: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row for each group of weights of one layer that have one scale: modules, part, value; JSON values.

    The experts of a layer are one row, with the smallest and the largest scale. Reading a scale compares the ranks'.
    """
    return [row for number in range(len(model.layers)) for row in _of_layer(model, number, weights, forms)]


def _of_layer(model: ModelSpec, number: int, weights: Unsharded, forms: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    facts = {fact.role: fact for fact in layer_tensors(model, number) if not fact.is_bias}
    for roles in _GROUPS:
        group = [facts[role] for role in roles if role in facts]
        if len(group) < len(roles):
            continue
        names = list(zip(*(fact.names() for fact in group), strict=True))
        part = _OF_A_MATRIX.get(forms.get(names[0][0], "").removesuffix("_64"))
        if part is None:
            continue
        values = [[weights.number(part_name(name, part)) for name in each] for each in names]
        if all(len(set(each)) == 1 for each in values):
            modules = [module_of(fact.name) for fact in group]
            yield {"modules": modules, "part": part, **_numbers([each[0] for each in values], group[0].name)}


def _numbers(values: list[float], name: str) -> dict[str, Any]:
    if EXPERT not in name:
        return {"value": values[0]}
    return {"experts": len(values), "smallest": min(values), "largest": max(values)}


def require_agreement(weights: Unsharded) -> None:
    """Read every scale that is one number, so that ranks which differ are told before the first byte.

    Raises ``TensorError`` for the first.
    """
    for name, stored in weights.tensors.items():
        if not stored.shape:
            weights.number(name)
