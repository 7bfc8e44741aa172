"""Whether a checkpoint that comes quantised is passed through as it is, and what in a profile stands against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import is_excluded, kinds_by_format, module_of, tensor_formats
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec, StoredFormats
from trtllm_kit.spec.profile_formats import KvFormat, Quantization, WeightFormat
from trtllm_kit.spec.tensors import layer_tensors
from trtllm_kit.upstream.quant_algos import Layout

PASSED_THROUGH: tuple[WeightFormat, ...] = (
    "fp8", "fp8_rowwise", "fp8_block", "int8_wo", "mxfp8", "nvfp4", "mxfp4", "int4_awq", "w4a8_awq", "int8_sq", "mixed",
)  # fmt: skip
"""Formats of given checkpoints whose every tensor is known, so that it can be checked and handed on."""
LAYOUT: Layout = "unified_hf"
"""The layout they come in."""
TO_RANKS: tuple[WeightFormat, ...] = ("fp8", "fp8_rowwise", "nvfp4")
"""Formats whose codes are cut into an engine's ranks, where q, k and v have one scale: three would ask to be rounded a
second time, and what their scales are, only the weights themselves say."""


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
    named = loaded.source("quantization.weights") == "profile"
    return held_formats(stored, asked.weights if named else stored.weights, kv_cache)


def held_formats(stored: StoredFormats, weights: WeightFormat | None, kv_cache: KvFormat = "bf16") -> Formats:
    """Return the formats of a checkpoint that is taken as it lies, its weights under one of their names."""
    return Formats(
        weights=weights or "bf16",
        kv_cache=kv_cache,
        exclude=stored.exclude,
        groups=dict(stored.layers),
        group_size=stored.group_size,
        passed_through=True,
    )


def _agree(asked: WeightFormat, held: WeightFormat | None) -> bool:
    """Whether two names stand for one way to store: plain INT4 goes by the word of AWQ, and lies as it does."""
    return asked == held or (asked == "int4_wo" and held == "int4_awq")


def conflicts(model: ModelSpec, loaded: LoadedProfile) -> Iterator[Conflict]:
    """Yield each key that asks for other formats than those of a checkpoint that could be passed through."""
    stored, asked = model.stored, loaded.profile.quantization
    if stored is None or stored.weights not in PASSED_THROUGH:
        return
    weights_agree = loaded.source("quantization.weights") != "profile" or _agree(asked.weights, stored.weights)
    if not weights_agree:
        yield Conflict(
            "quantization.weights", asked.weights, str(stored.weights), f"quantization.weights: {stored.weights}"
        )
    by_itself = stored.kv_cache == "bf16" and asked.kv_cache == "fp8"  # the runtime stores it with a scale of 1
    if loaded.source("quantization.kv_cache") == "profile" and asked.kv_cache != stored.kv_cache and not by_itself:
        agreeing = f"quantization.kv_cache: {stored.kv_cache}"
        yield Conflict("quantization.kv_cache", asked.kv_cache, stored.kv_cache, agreeing)
    if asked.group_size not in ("auto", stored.group_size):
        agreeing = f"quantization.group_size: {stored.group_size}" if stored.group_size else _LEAVE_OUT_SIZE
        yield Conflict("quantization.group_size", str(asked.group_size), str(stored.group_size), agreeing)
    if asked.groups is not None and weights_agree:
        yield from _groups_conflict(model, stored, asked)
    elif loaded.source("quantization.exclude") == "profile":
        yield from _exclude_conflict(model, stored, asked.exclude)


_LEAVE_OUT_SIZE = "leave quantization.group_size out"


def _groups_conflict(model: ModelSpec, stored: StoredFormats, asked: Quantization) -> Iterator[Conflict]:
    """Yield the first module whose format by the profile's parts and patterns is not the one that is held."""
    wanted = Formats("mixed", exclude=asked.exclude, groups=asked.groups.by_name if asked.groups else {})
    held = held_formats(stored, stored.weights)
    for number in range(len(model.layers)):
        ours, theirs = (tensor_formats(model, number, formats) for formats in (wanted, held))
        for fact in layer_tensors(model, number):
            pair = ours.get(fact.name, "bf16"), theirs.get(fact.name, "bf16")
            if not _agree(*pair):
                place = f"{pair[0]} for {module_of(next(fact.names()))}"
                yield Conflict("quantization.groups", place, f"{pair[1]} there", "leave the section quantization out")
                return


def _exclude_conflict(model: ModelSpec, stored: StoredFormats, patterns: tuple[str, ...]) -> Iterator[Conflict]:
    formats = held_formats(stored, stored.weights)
    for number, _ in kinds_by_format(model, replace(formats, exclude=(*patterns, *stored.exclude))):
        held = tensor_formats(model, number, formats)
        for fact in layer_tensors(model, number):
            if fact.name in held and is_excluded(fact, patterns):
                module, there = module_of(next(fact.names())), f"{held[fact.name]} there"
                yield Conflict("quantization.exclude", module, there, "leave quantization.exclude out")
                return
