"""Which tensors take which number format, and what a format costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.spec.tensors import Role, TensorFact, layer_kinds, layer_tensors, outer_tensors
from trtllm_kit.spec.vision import vision_of

FORMAT_BYTES: dict[str, float] = {"bf16": 2, "fp8": 1, "nvfp4": 0.5}
"""Bytes of one element; bf16 stands for every 16-bit format."""
SCALE_BYTES = 4
"""A scale of a whole tensor is one float32."""
NVFP4_BLOCK = 16
"""Consecutive input elements that share one e4m3 scale, beside the scale of their tensor."""
BLOCK_SCALE_BYTES: dict[str, float] = {"bf16": 0, "fp8": 0, "nvfp4": 1 / NVFP4_BLOCK}
"""Bytes of block scales that one element carries on top."""
MADE_HERE = ("bf16", "fp8")
"""Formats that ``trtkit convert`` writes."""
_TELLS_NUMBERS_APART = re.compile(r"[0-9?\[]")
HEAD = "lm_head"
"""The head's plain name, which the default pattern uses and which a tied or nested model does not store."""


def quantised_tensors(model: ModelSpec, number: int, exclude: tuple[str, ...]) -> frozenset[str]:
    """Return the weights of decoder layer ``number`` that leave 16 bit when the model is quantised.

    Only linear layers do: embedding, output head, norms, routers and biases never. When an exclude pattern names
    one tensor's module, what the runtime fuses with it stays in 16 bit too. Names are those of ``layer_tensors``.
    """
    wide = _kept_wide(model, number)
    groups = (group for group in fused_groups(model, number) if wide.isdisjoint(fact.role for fact in group))
    chosen = (group for group in groups if not any(is_excluded(fact, exclude) for fact in group))
    return frozenset(fact.name for group in chosen for fact in group)


def _kept_wide(model: ModelSpec, number: int) -> frozenset[Role]:
    """Return the roles of linear layers that never leave 16 bit in a layer.

    Those in front of latent attention: TensorRT-LLM cuts ``kv_b_proj`` apart as it loads and reads no scale of a whole
    tensor beside it, and NVIDIA's own quantised DeepSeek checkpoints keep all four.
    """
    return _LATENT_INPUTS if model.layers[number].attention.latent is not None else frozenset()


_LATENT_INPUTS = frozenset({Role.QUERY, Role.QUERY_DOWN, Role.QUERY_UP, Role.LATENT_DOWN, Role.LATENT_UP})


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
    (Role.ATTENTION_OUT,),
)
_EXPERT_GROUPS = (
    (Role.SHARED_GATE, Role.SHARED_UP),
    (Role.SHARED_DOWN,),
    (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN),
)


def is_excluded(fact: TensorFact, patterns: Iterable[str]) -> bool:
    """Whether a pattern names the module of a tensor (of any of its copies); * matches anything."""
    return any(fnmatchcase(module_of(name), pattern) for pattern in patterns for name in _names(fact, pattern))


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
        if not any(fnmatchcase(module, pattern) for module in outside) and not _names_a_layer(model, pattern)
    )


def _names_a_layer(model: ModelSpec, pattern: str) -> bool:
    numbers = range(len(model.layers)) if tells_numbers_apart(pattern) else one_of_each_kind(model)
    return any(is_excluded(fact, (pattern,)) for number in numbers for fact in layer_tensors(model, number))


def one_of_each_kind(model: ModelSpec) -> tuple[int, ...]:
    """Return the first layer number of each kind of layer."""
    return tuple(number for number, _ in layer_kinds(model))


def plain_weights_advice(model: ModelSpec) -> str:
    """Return how to come by the 16-bit weights of a model whose checkpoint is quantised already."""
    return _ADVICE.get((model.family, model.quantized_as or ""), "give the folder of the model's BF16 original")


_ADVICE: dict[tuple[str, str], str] = {
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
    """Return the names a pattern must be tried on: of copies it cannot tell apart, the first stands for all."""
    return fact.names() if tells_numbers_apart(pattern) else islice(fact.names(), 1)
