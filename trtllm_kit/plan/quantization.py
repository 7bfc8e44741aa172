"""Which tensors take which number format, and what a format costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice

from trtllm_kit.spec.model import Experts, ModelSpec, Role, TensorFact, layer_tensors

FORMAT_BYTES: dict[str, int] = {"bf16": 2, "fp8": 1}
"""Bytes of one element; bf16 stands for every 16-bit format."""
SCALE_BYTES = 4
"""Every scale is one float32."""
_TELLS_EXPERTS_APART = re.compile(r"[0-9?\[]")
"""What a pattern must hold to name one expert and not another: their names differ in a number alone."""


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


def module_of(tensor: str) -> str:
    """Return the module a weight belongs to; Llama 4's fused experts are named like modules themselves."""
    return tensor.removesuffix(".weight")


def _names(fact: TensorFact, pattern: str) -> Iterable[str]:
    """Return the names a pattern must be tried on: of copies it cannot tell apart, the first stands for all."""
    return fact.names() if _TELLS_EXPERTS_APART.search(pattern) else islice(fact.names(), 1)
