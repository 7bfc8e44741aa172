"""The reader of Phi-3, and of Phi-3.5, Phi-4 and Phi-4-mini, which have its architecture.

A long rope has its divisors in lists. Up to transformers 4 the trained length and the part of a head that is turned
stand beside the rope section, from 5 on in it.
"""

from __future__ import annotations

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import alike, one_window, read_attention, read_dense
from trtllm_kit.spec.hf_neutral import check_rope_rest
from trtllm_kit.spec.hf_rope import read_rope, read_theta, rope_section, turned_elements
from trtllm_kit.spec.model import Layer, Rope

_LONG = ("longrope", "su")
"""Both names of the long rope; early files have the second."""


def read_phi3(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: q, k and v in one tensor, gate and up in one, heads that may be turned in part."""
    attention = read_attention(keys, multi_head=True)
    turned = turned_elements(keys, attention.head_dim)
    section = rope_section(keys)
    for key in ("short_factor", "long_factor"):
        factors = section.numbers(key)
        if factors is not None and len(factors) != turned // 2 and keys.sound("partial_rotary_factor"):
            section.note(key, f"{turned // 2} numbers, one for each pair of turned elements, not {len(factors)}")
    partial = turned if turned != attention.head_dim else None
    fused = attention.model_copy(update={"fused_qkv": True, "rotary_dim": partial})
    return alike(one_window(keys, None), fused, read_dense(keys).model_copy(update={"fused_gate_up": True}))


def read_phi3_rope(keys: Keys, default_theta: float, *, neighbours: bool = False) -> Rope:
    """Read the default rope, or the long one.

    Without a ``factor`` of its own a long rope stretches the context by the claimed length over the trained one.
    """
    section = rope_section(keys)
    kind = section.word(section.spelling("rope_type", "type"), ("default", *_LONG), default="default")
    section.ignore("partial_rotary_factor")
    if kind == "default":
        keys.ignore("original_max_position_embeddings")
        section.ignore("original_max_position_embeddings")
        return read_rope(keys, default_theta, neighbours=neighbours, section=section)
    trained = _trained(keys, section)
    rope = Rope(
        theta=read_theta(keys, section, default_theta),
        kind="longrope",
        factor=section.number("factor", default=keys.integer("max_position_embeddings") / trained),
        original_max_position=trained,
        magnitude=section.optional_number("attention_factor"),
        short_factors=_factors(section, "short_factor"),
        long_factors=_factors(section, "long_factor"),
        interleaved=neighbours,
    )
    check_rope_rest(section)
    return rope


def _trained(keys: Keys, section: Keys) -> int:
    """Return the length the model was trained at, tokens."""
    inner = section.optional_integer("original_max_position_embeddings", least=2)
    outer = keys.optional_integer("original_max_position_embeddings", least=2)
    if inner is not None and outer is not None and inner != outer:
        keys.note("original_max_position_embeddings", f"the value of the rope section, {inner}")
    if inner is None and outer is None and keys.sound("original_max_position_embeddings"):
        keys.note("original_max_position_embeddings", "the trained length, which a long rope needs")
    return inner or outer or keys.integer("max_position_embeddings")


def _factors(section: Keys, key: str) -> tuple[float, ...]:
    factors = section.numbers(key)
    if factors is None and section.sound(key):
        section.note(key, "a list of numbers above 0")
    return factors or ()
