"""Which tensors take which number format, and what a format costs."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from trtllm_kit.spec.model import Experts, ModelSpec, Role, TensorFact, layer_tensors

FORMAT_BYTES: dict[str, int] = {"bf16": 2, "fp8": 1}
"""Bytes of one element; bf16 stands for every 16-bit format."""
SCALE_BYTES = 4
"""Every scale is one float32."""
_ATTENTION_GROUPS = (frozenset({Role.QUERY, Role.KEY, Role.VALUE}), frozenset({Role.ATTENTION_OUT}))
_DENSE_GROUPS = (frozenset({Role.GATE, Role.UP}), frozenset({Role.DOWN}))
_EXPERT_GROUPS = (
    frozenset({Role.GATE, Role.UP, Role.DOWN}),
    frozenset({Role.EXPERT_GATE_UP, Role.EXPERT_DOWN}),
)
"""Roles whose tensors the runtime fuses: one format holds for all of a group."""


def quantised_tensors(model: ModelSpec, number: int, exclude: tuple[str, ...]) -> frozenset[str]:
    """Return the weights of decoder layer ``number`` that leave 16 bit when the model is quantised.

    Only linear layers do: embedding, output head, norms, routers and biases never. When an exclude pattern names
    one tensor's module, what the runtime fuses with it stays in 16 bit too.
    """
    facts = [fact for fact in layer_tensors(model, number) if fact.name.endswith("_proj") or _is_weight(fact)]
    experts = isinstance(model.layers[number].feed_forward, Experts)
    groups = _ATTENTION_GROUPS + (_EXPERT_GROUPS if experts else _DENSE_GROUPS)
    chosen: list[str] = []
    for roles in groups:
        group = [fact for fact in facts if fact.role in roles]
        if not any(is_excluded(fact.name, exclude) for fact in group):
            chosen += [fact.name for fact in group]
    return frozenset(chosen)


def is_excluded(tensor: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern names the module a tensor belongs to; * matches anything."""
    module = tensor.removesuffix(".weight")
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def _is_weight(fact: TensorFact) -> bool:
    return fact.name.endswith(".weight") and len(fact.shape) > 1
