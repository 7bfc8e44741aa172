"""Whether a checkpoint that comes quantised is passed through as it is, and what in a profile stands against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import is_excluded, module_of, one_of_each_kind, tells_numbers_apart, tensor_formats
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec, StoredFormats
from trtllm_kit.spec.profile_formats import WeightFormat
from trtllm_kit.spec.tensors import layer_tensors
from trtllm_kit.upstream.quant_algos import Layout

PASSED_THROUGH: tuple[WeightFormat, ...] = (
    "fp8", "fp8_rowwise", "fp8_block", "int8_wo", "mxfp8", "nvfp4", "mxfp4",
)  # fmt: skip
"""Formats of given checkpoints whose every tensor is known, so that it can be checked and handed on."""
LAYOUT: Layout = "unified_hf"
"""The layout they come in, and the only one they are passed through to.

An engine's checkpoint keeps q, k and v under one scale: codes of three scales would be rounded a second time.
"""


class Conflict(NamedTuple):
    """A key of the profile that asks for something else than the checkpoint holds."""

    key: str
    asked: str
    held: str
    way_out: str
    """What to change in the profile."""


def stored_formats(model: ModelSpec, loaded: LoadedProfile) -> Formats | None:
    """Return the formats of a checkpoint that is passed through; None for one that is plain, or cannot be.

    A key that the profile leaves out takes what the checkpoint holds; one that it sets must agree.
    """
    stored = model.stored
    if stored is None or stored.weights not in PASSED_THROUGH or any(conflicts(model, loaded)):
        return None
    return _formats(stored, loaded)


def _formats(stored: StoredFormats, loaded: LoadedProfile) -> Formats:
    asked = loaded.profile.quantization
    set_there = loaded.source("quantization.kv_cache") == "profile"
    kv_cache = asked.kv_cache if set_there else stored.kv_cache
    return Formats(stored.weights or "bf16", kv_cache, stored.exclude, passed_through=True)


def conflicts(model: ModelSpec, loaded: LoadedProfile) -> Iterator[Conflict]:
    """Yield each key that asks for other formats than those of a checkpoint that could be passed through."""
    stored, asked = model.stored, loaded.profile.quantization
    if stored is None or stored.weights not in PASSED_THROUGH:
        return
    if loaded.source("quantization.weights") == "profile" and asked.weights != stored.weights:
        yield Conflict(
            "quantization.weights", asked.weights, str(stored.weights), f"quantization.weights: {stored.weights}"
        )
    by_itself = stored.kv_cache == "bf16" and asked.kv_cache == "fp8"  # the runtime stores it with a scale of 1
    if loaded.source("quantization.kv_cache") == "profile" and asked.kv_cache != stored.kv_cache and not by_itself:
        agreeing = f"quantization.kv_cache: {stored.kv_cache}"
        yield Conflict("quantization.kv_cache", asked.kv_cache, stored.kv_cache, agreeing)
    if loaded.source("quantization.exclude") == "profile":
        yield from _exclude_conflict(model, stored, asked.exclude)


def _exclude_conflict(model: ModelSpec, stored: StoredFormats, patterns: tuple[str, ...]) -> Iterator[Conflict]:
    formats = Formats(stored.weights or "bf16", exclude=stored.exclude, passed_through=True)
    apart = any(map(tells_numbers_apart, (*patterns, *stored.exclude)))
    for number in range(len(model.layers)) if apart else one_of_each_kind(model):
        held = tensor_formats(model, number, formats)
        for fact in layer_tensors(model, number):
            if fact.name in held and is_excluded(fact, patterns):
                module, there = module_of(next(fact.names())), f"{held[fact.name]} there"
                yield Conflict("quantization.exclude", module, there, "leave quantization.exclude out")
                return
