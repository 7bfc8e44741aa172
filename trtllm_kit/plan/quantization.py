"""Which tensors take which number format, and which formats the kit makes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import lru_cache
from itertools import islice
from typing import Literal

from trtllm_kit.plan.formats import Formats
from trtllm_kit.spec.model import Attention, Experts, ModelSpec
from trtllm_kit.spec.profile_formats import KvFormat, PartFormat, WeightFormat
from trtllm_kit.spec.tensors import EXPERT, Role, TensorFact, layer_kinds, layer_tensors, outer_tensors
from trtllm_kit.spec.vision import vision_of
from trtllm_kit.upstream.quant_algos import Layout, latent_inputs, unread_algo
from trtllm_kit.upstream.quant_methods import quant_method

Part = Literal["attention", "feed_forward", "experts"]
MADE_HERE: tuple[WeightFormat, ...] = (
    "bf16", "fp8", "fp8_rowwise", "fp8_block", "int8_wo", "int4_wo", "mxfp8", "nvfp4",
)  # fmt: skip
"""Formats of weights that ``trtkit convert`` writes itself; ``mixed`` is made where each of its formats is."""
KV_MADE_HERE: tuple[KvFormat, ...] = ("bf16", "fp8", "nvfp4")
"""Formats of the KV cache whose scales it measures."""
MADE_BY_MODELOPT: tuple[PartFormat, ...] = ("int4_awq", "w4a8_awq", "int8_sq")
"""Formats whose numbers NVIDIA ModelOpt looks for, out of process; one of them at a time."""
_MODELOPT_TAKES: tuple[PartFormat, ...] = ("fp8", "nvfp4", *MADE_BY_MODELOPT)
Maker = Literal["native", "modelopt"]
"""Who measures and writes weights."""
_TELLS_NUMBERS_APART = re.compile(r"[0-9?\[]")
HEAD = "lm_head"
"""The head's plain name, which the default pattern uses and which a tied or nested model does not store."""


def tensor_formats(model: ModelSpec, number: int, formats: Formats) -> dict[str, PartFormat]:
    """Return the weights of decoder layer ``number`` that leave 16 bit, each with its format.

    Only linear layers do: embedding, output head, norms, routers and biases never. When an exclude pattern names
    one tensor's module, what the runtime fuses with it stays in 16 bit too. Names are those of ``layer_tensors``.
    """
    if not formats.quantises:
        return {}
    chosen: dict[str, PartFormat] = {}
    for group in fused_groups(model, number):
        wanted = _wanted(model, number, group[0], formats)
        if wanted != "bf16" and not any(is_excluded(fact, formats.exclude) for fact in group):
            chosen |= {fact.name: wanted for fact in group}
    return chosen


def maker_of(formats: Formats, backend: str, layout: Layout) -> Maker:
    """Return who makes the weights of a plan: trtkit where it can, unless ModelOpt is asked for and can."""
    if formats.passed_through:
        return "native"
    asked = backend == "modelopt" and formats.calibrates and set(formats.used) <= set(_MODELOPT_TAKES)
    searched = backend != "native" and len(formats.used) == 1 and formats.used[0] in MADE_BY_MODELOPT
    if layout != "unified_hf":
        return "modelopt" if searched else "native"
    alone = len(formats.used) == 1 or not set(formats.used) & set(MADE_BY_MODELOPT)
    return "modelopt" if (asked and alone) or searched else "native"


def not_made_here(formats: Formats, maker: Maker = "native") -> dict[str, tuple[str, ...]]:
    """Return the formats that ``trtkit convert`` does not write, by ``weights`` and ``kv_cache``; empty when it can."""
    if formats.passed_through:
        return {}
    made = _MODELOPT_TAKES if maker == "modelopt" else MADE_HERE
    lacking: dict[str, tuple[str, ...]] = {
        "weights": tuple(chosen for chosen in formats.used if chosen not in made),
        "kv_cache": () if formats.kv_cache in KV_MADE_HERE else (formats.kv_cache,),
    }
    return {part: chosen for part, chosen in lacking.items() if chosen}


def _wanted(model: ModelSpec, number: int, fact: TensorFact, formats: Formats) -> PartFormat:
    """Return the format that is asked for a weight, before any pattern."""
    chosen = _of_mixed(model, number, fact, formats) if formats.weights == "mixed" else formats.weights
    if formats.passed_through:
        of_experts = fact.role in _FUSED_EXPERTS or fact.copies > 1
        return chosen if chosen not in _OF_EXPERTS or of_experts else "bf16"
    return "bf16" if _has_latent_attention(model, number) and fact.role in latent_inputs(chosen) else chosen


def _of_mixed(model: ModelSpec, number: int, fact: TensorFact, formats: Formats) -> PartFormat:
    """Return the format of a weight's part, or of the first pattern that names its module; of copies, the first's."""
    part = part_of(model, number, fact)
    if part in formats.groups:
        return formats.groups[part]
    module = module_of(next(fact.names()))
    named = (chosen for pattern, chosen in formats.groups.items() if _matches(module, pattern))
    return next(named, "bf16")


def part_of(model: ModelSpec, number: int, fact: TensorFact) -> Part:
    """Return the part of a layer that a linear weight belongs to, as ``quantization.groups`` names it."""
    if fact.role in _ATTENTION:
        return "attention"
    routed = isinstance(model.layers[number].feed_forward, Experts)
    of_experts = fact.role in _FUSED_EXPERTS or (routed and fact.role in _FEED_FORWARD)
    return "experts" if of_experts else "feed_forward"


def _has_latent_attention(model: ModelSpec, number: int) -> bool:
    mixer = model.layers[number].mixer
    return isinstance(mixer, Attention) and mixer.latent is not None


_OF_EXPERTS = ("mxfp4",)


def fused_groups(model: ModelSpec, number: int) -> Iterator[tuple[TensorFact, ...]]:
    """Yield the linear weights of a layer in the groups that the runtime fuses: one format holds for all of a group.

    Fused are q, k and v, or the two projections that squeeze for latent attention; gate and up; and all projections
    of all routed experts. A tensor that a checkpoint stores fused already is a group by itself.
    """
    by_role = {fact.role: fact for fact in layer_tensors(model, number) if not fact.is_bias}
    routed = isinstance(model.layers[number].feed_forward, Experts)
    feed_forward = ((Role.GATE, Role.UP, Role.DOWN),) if routed else ((Role.GATE, Role.UP), (Role.DOWN,))
    for roles in (*_ATTENTION_GROUPS, (Role.GATE_UP,), *feed_forward, *_EXPERT_GROUPS):
        group = tuple(by_role[role] for role in roles if role in by_role)
        if group:
            yield group


_ATTENTION_GROUPS = (
    (Role.QUERY, Role.KEY, Role.VALUE),
    (Role.QKV,),
    (Role.QUERY_DOWN, Role.LATENT_DOWN),
    (Role.QUERY_UP,),
    (Role.LATENT_UP,),
    (Role.INDEX_QUERY,),
    (Role.INDEX_KEY,),
    (Role.OUTPUT_DOWN,),
    (Role.ATTENTION_OUT,),
    (Role.MIXER_IN, Role.MIXER_GATE),
    (Role.MIXER_OUT,),
)
_EXPERT_GROUPS = (
    (Role.SHARED_GATE, Role.SHARED_UP),
    (Role.SHARED_DOWN,),
    (Role.EXPERT_LATENT_DOWN,),
    (Role.EXPERT_LATENT_UP,),
    (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN),
)
_ATTENTION = frozenset(role for group in _ATTENTION_GROUPS for role in group)
_FEED_FORWARD = (Role.GATE, Role.UP, Role.DOWN)
_FUSED_EXPERTS = (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)


def is_excluded(fact: TensorFact, patterns: Iterable[str]) -> bool:
    """Whether a pattern names the module of a tensor (of any of its copies); * matches anything."""
    return any(_matches(module_of(name), pattern) for pattern in patterns for name in _names(fact, pattern))


def _matches(name: str, pattern: str) -> bool:
    return _compiled(pattern).match(name) is not None


@lru_cache(maxsize=1 << 16)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern as an expression; ``fnmatch`` forgets them where a checkpoint names hundreds of layers."""
    return re.compile(translate(pattern))


def tells_numbers_apart(pattern: str) -> bool:
    """Whether a pattern can name one layer or expert and not another: their names differ in a number alone."""
    return _TELLS_NUMBERS_APART.search(pattern) is not None


def idle_patterns(model: ModelSpec, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that name no module, neither of a layer nor outside them."""
    outside = {module_of(fact.name) for fact in outer_tensors(model)} | {module_of(model.head_name), HEAD}
    outside |= set(vision_of(model).examples)  # copied as they are, and may be named all the same
    return tuple(
        pattern
        for pattern in patterns
        if not any(_matches(module, pattern) for module in outside) and not _names_a_layer(model, pattern)
    )


def _names_a_layer(model: ModelSpec, pattern: str) -> bool:
    numbers = range(len(model.layers)) if tells_numbers_apart(pattern) else one_of_each_kind(model)
    return any(is_excluded(fact, (pattern,)) for number in numbers for fact in layer_tensors(model, number))


def one_of_each_kind(model: ModelSpec) -> tuple[int, ...]:
    """Return the first layer number of each kind of layer."""
    return tuple(number for number, _ in layer_kinds(model))


def kinds_by_format(model: ModelSpec, formats: Formats, stage: range | None = None) -> Iterator[tuple[int, int]]:
    """Yield one layer number of each kind in a stage (all layers without one) with the count of layers alike.

    Where a pattern may single out one layer, each is a kind of its own.
    """
    numbers = range(len(model.layers)) if stage is None else stage
    alike: dict[object, list[int]] = {}
    apart = formats.quantises and any(map(tells_numbers_apart, (*formats.exclude, *formats.groups)))
    for number in numbers:
        alike.setdefault(number if apart else model.layers[number], []).append(number)
    return ((found[0], len(found)) for found in alike.values())


def plain_weights_advice(model: ModelSpec) -> str:
    """Return how to come by the 16-bit weights of a model whose checkpoint is quantised already."""
    method = model.quantized_as or ""
    scheme = model.stored.scheme if model.stored else ""
    known = unread_algo(scheme) or quant_method(method, scheme)
    general = "give the folder of the model's BF16 original" + (f", or {known.instead}" if known else "")
    return _ADVICE.get((model.family, method), general)


_ADVICE: dict[tuple[str, str], str] = {
    ("deepseek_v3", "modelopt"): "take the FP8 original, turn its blocks into BF16 with fp8_cast_bf16.py of DeepSeek's "
    "repository and give that folder, or serve the given folder as it is, without trtkit convert",
    ("deepseek_v3", "fp8"): "turn the FP8 blocks into BF16 with fp8_cast_bf16.py of DeepSeek's repository and give "
    "that folder, or serve the FP8 folder as it is, without trtkit convert",
    ("gpt_oss", "mxfp4"): "let transformers write BF16, from_pretrained with Mxfp4Config(dequantize=True) and "
    "save_pretrained, and give that folder, or serve the MXFP4 folder as it is, without trtkit convert",
}
"""These two were never published in 16 bit."""


def module_of(tensor: str) -> str:
    """Return the module a weight belongs to; Llama 4's fused experts are named like modules themselves."""
    return tensor.removesuffix(".weight")


def _names(fact: TensorFact, pattern: str) -> Iterable[str]:
    """Return the names a pattern must be tried on: of copies it cannot tell apart, the first stands for all.

    None where already the beginnings differ, before any copy's number and any wildcard: a file may name every layer in
    a pattern of its own, and a layer has hundreds of experts.
    """
    before, literal = fact.name.split(EXPERT)[0], _WILDCARD.split(pattern, maxsplit=1)[0]
    if not (before.startswith(literal) or literal.startswith(before)):
        return ()
    return fact.names() if tells_numbers_apart(pattern) else islice(fact.names(), 1)


_WILDCARD = re.compile(r"[*?\[]")
