"""Which tensors take which number format, and what a format costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from trtllm_kit.spec.model import Experts, Layer, ModelSpec
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors, outer_tensors

FORMAT_BYTES: dict[str, int] = {"bf16": 2, "fp8": 1}
"""Bytes of one element; bf16 stands for every 16-bit format."""
SCALE_BYTES = 4
"""Every scale is one float32."""
_TELLS_NUMBERS_APART = re.compile(r"[0-9?\[]")
HEAD = "lm_head"
"""The head's plain name, which the default pattern uses and which a tied or nested model does not store."""
LLAMA4_VISION = ("vision_model.model.layers.0.self_attn.q_proj", "multi_modal_projector.linear_1")
"""Modules that stand for the parts of Llama 4 which are passed through as they are, and may be named all the same."""


def quantised_tensors(model: ModelSpec, number: int, exclude: tuple[str, ...]) -> frozenset[str]:
    """Return the weights of decoder layer ``number`` that leave 16 bit when the model is quantised.

    Only linear layers do: embedding, output head, norms, routers and biases never. When an exclude pattern names
    one tensor's module, what the runtime fuses with it stays in 16 bit too. Names are those of ``layer_tensors``.
    """
    groups = fused_groups(model, number)
    chosen = (group for group in groups if not any(is_excluded(fact, exclude) for fact in group))
    return frozenset(fact.name for group in chosen for fact in group)


def fused_groups(model: ModelSpec, number: int) -> Iterator[tuple[TensorFact, ...]]:
    """Yield the linear weights of a layer in the groups that the runtime fuses: one format holds for all of a group.

    Fused are q, k and v; gate and up; and all projections of all routed experts.
    """
    by_role = {fact.role: fact for fact in layer_tensors(model, number) if not fact.name.endswith(".bias")}
    block = model.layers[number].feed_forward
    routed = isinstance(block, Experts) and block.layout != "llama4"
    feed_forward = ((Role.GATE, Role.UP, Role.DOWN),) if routed else ((Role.GATE, Role.UP), (Role.DOWN,))
    fused_experts = (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)
    for roles in ((Role.QUERY, Role.KEY, Role.VALUE), (Role.ATTENTION_OUT,), *feed_forward, fused_experts):
        group = tuple(by_role[role] for role in roles if role in by_role)
        if group:
            yield group


def is_excluded(fact: TensorFact, patterns: Iterable[str]) -> bool:
    """Whether a pattern names the module of a tensor (of any of its copies); * matches anything."""
    return any(fnmatchcase(module_of(name), pattern) for pattern in patterns for name in _names(fact, pattern))


def tells_numbers_apart(pattern: str) -> bool:
    """Whether a pattern can name one layer or expert and not another: their names differ in a number alone."""
    return _TELLS_NUMBERS_APART.search(pattern) is not None


def idle_patterns(model: ModelSpec, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that name no module, neither of a layer nor outside them."""
    outside = {module_of(fact.name) for fact in outer_tensors(model)} | {module_of(model.head_name), HEAD}
    outside |= set(LLAMA4_VISION) if model.family == "llama4" else set()
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
    first: dict[Layer, int] = {}
    for number, layer in enumerate(model.layers):
        first.setdefault(layer, number)
    return tuple(first.values())


def module_of(tensor: str) -> str:
    """Return the module a weight belongs to; Llama 4's fused experts are named like modules themselves."""
    return tensor.removesuffix(".weight")


def _names(fact: TensorFact, pattern: str) -> Iterable[str]:
    """Return the names a pattern must be tried on: of copies it cannot tell apart, the first stands for all."""
    return fact.names() if tells_numbers_apart(pattern) else islice(fact.names(), 1)
