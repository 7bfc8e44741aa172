"""Tensors of the models of an ``inflight_batcher_llm`` repository, and how its ensemble joins them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "triton_engines"
CHOICES = ("logits", "features", "prompts")
"""Types that a repository chooses once for all of its models."""
Form = Literal["plain", "scalar", "ragged"]


class EngineTensor(Fact):
    """One input or output of one model, as ``config.pbtxt`` declares it."""

    model: str
    side: Literal["input", "output"]
    name: str
    data_type: str
    """Triton's type without ``TYPE_``, or one of ``CHOICES``."""
    dims: tuple[int, ...]
    """Without the batch dimension; -1 is any length."""
    optional: bool = False
    form: Form = "plain"
    """``scalar``: the model sees a number and no dimension of length 1; ``ragged``: shapes may differ in a batch."""


class _Fixed(Fact):
    name: str
    data_type: str


class _Joined(Fact):
    model: str
    side: Literal["input", "output"]
    tensors: Mapping[str, str]


def engine_tensors(model: str, version: str) -> tuple[EngineTensor, ...]:
    """Return the inputs and outputs of one of the five models in that release, in the order of their declaration."""
    return tuple(row for row in _tensors() if row.model == model and row.holds(version))


def fixed_type(choice: str, version: str) -> str | None:
    """Return the type that the release's own templates give a choice; None where they leave it open."""
    found = (row.data_type for row in rows(_TABLE, "fixed", _Fixed) if row.name == choice and row.holds(version))
    return next(found, None)


def joined(model: str, side: Literal["input", "output"], version: str) -> dict[str, str]:
    """Return the model's tensors -> the ensemble's, of a step of the ensemble of that release.

    A tensor of the ensemble whose name begins with ``_`` is its own; a pair is left out when a side lacks its tensor.
    """
    row = next(one for one in rows(_TABLE, "steps", _Joined) if (one.model, one.side) == (model, side))
    inner = {tensor.name for tensor in engine_tensors(model, version)}
    outer = {tensor.name for tensor in engine_tensors("ensemble", version)}
    return {
        name: whole
        for name, whole in row.tensors.items()
        if name in inner and (whole.startswith("_") or whole in outer)
    }


@cache
def _tensors() -> tuple[EngineTensor, ...]:
    return rows(_TABLE, "tensors", EngineTensor)
