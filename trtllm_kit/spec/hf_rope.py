"""Rotary position embedding as ``config.json`` spells it.

Up to transformers 4 a model has ``rope_theta`` and ``rope_scaling`` (whose kind is ``type`` or ``rope_type``);
from 5 on one ``rope_parameters`` holds all of it.
"""

from __future__ import annotations

import math
from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_neutral import check_rope_rest
from trtllm_kit.spec.model import Rope

_LAYER_TYPES = ("full_attention", "sliding_attention")
_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")


def read_rope(keys: Keys, default_theta: float, *, neighbours: bool = False, section: Keys | None = None) -> Rope:
    """Read the rope of a model; ``default_theta`` is the base of its family when the file states none.

    ``neighbours`` is the family's way of pairing the elements of a head; ``section`` the rope section, when a family
    has read keys of its own in it.
    """
    section = rope_section(keys) if section is None else section
    return _rope(section, read_theta(keys, section, default_theta), neighbours=neighbours)


def _rope(section: Keys, theta: float, *, neighbours: bool) -> Rope:
    kind = section.word(section.spelling("rope_type", "type"), _KINDS, default="default")
    facts = {"theta": theta, "kind": kind, "interleaved": neighbours}
    rope = Rope.model_validate(facts | _scaling(section, kind))
    check_rope_rest(section)
    return rope


def read_layer_rope(keys: Keys, layers: str, key: str, default_theta: float, *, neighbours: bool = False) -> Rope:
    """Read the rope of one type of layer, ``full_attention`` or ``sliding_attention``, where each has its own.

    From transformers 5 on the section holds a section for each type; before, it is that of the full layers, and
    ``key`` beside it holds the base.
    """
    section = rope_section(keys)
    if section.values.keys() & set(_LAYER_TYPES):
        by_type = {name: section.inner(name) for name in _LAYER_TYPES}
        section.word("rope_type", ("default",), default="default")  # transformers 5 writes it beside the two
        check_rope_rest(section)
        section = by_type[layers]
    elif layers != "full_attention":
        section = Keys({}, "", keys.problems)
    theta = read_theta(keys, section, default_theta, key)
    return _rope(section, theta, neighbours=neighbours)


def read_theta(keys: Keys, section: Keys, default: float, key: str = "rope_theta") -> float:
    """Return the base, which stands in the rope section or under ``key`` beside it; two that differ are a problem."""
    inner, outer = section.optional_number("rope_theta"), keys.optional_number(key)
    if inner is not None and outer is not None and inner != outer:
        keys.note(key, f"the rope_theta of the rope section, {inner:g}")
    return inner or outer or default


def rope_section(keys: Keys) -> Keys:
    """Return the one rope section; two that differ are a problem."""
    name = keys.spelling("rope_parameters", "rope_scaling")
    return keys.inner(name)


def turned_elements(keys: Keys, head_dim: int, default_share: float = 1.0) -> int:
    """Return how many elements of a head have a position, an even number.

    The share stands in the rope section or beside it; ``default_share`` is the family's own.
    """
    inner = rope_section(keys).optional_number("partial_rotary_factor")
    share = keys.number("partial_rotary_factor", default=inner or default_share)
    turned = int(head_dim * share)
    if (inner or share) != share:
        keys.note("partial_rotary_factor", f"the value of the rope section, {inner:g}")
    elif (turned % 2 or not 2 <= turned <= head_dim) and keys.sound("partial_rotary_factor", "head_dim"):
        keys.note("partial_rotary_factor", f"a share that turns an even number of a head's {head_dim} elements")
        return head_dim
    return turned


def _scaling(section: Keys, kind: str) -> dict[str, Any]:
    if kind == "default":
        return {}
    scaling: dict[str, Any] = {"factor": section.number("factor")}
    if kind in ("llama3", "yarn"):
        scaling["original_max_position"] = section.integer("original_max_position_embeddings")
    if kind == "yarn":
        scaling |= _yarn(section)
    if kind == "llama3":
        scaling["low_freq_factor"] = section.number("low_freq_factor")
        scaling["high_freq_factor"] = section.number("high_freq_factor")
    return scaling


def _yarn(section: Keys) -> dict[str, Any]:
    """Read the bounds of the ramp, and the magnitude where it is not yarn's own rule.

    DeepSeek states two weights: ``mscale`` of cosine and sine, and ``mscale_all_dim``, by which cosine and sine are
    divided since all of the head is multiplied by it.
    """
    shape: dict[str, Any] = {
        "beta_fast": section.number("beta_fast", default=32.0),
        "beta_slow": section.number("beta_slow", default=1.0),
        "truncate": section.flag("truncate", default=True),
    }
    turned, all_dim = section.optional_number("mscale"), section.optional_number("mscale_all_dim")
    stated = section.optional_number("attention_factor")
    if (turned is None) != (all_dim is None):
        missing = "mscale" if turned is None else "mscale_all_dim"
        section.note(missing, "a number above 0 beside the other mscale: runtimes disagree about one alone")
    elif stated is not None:
        shape["magnitude"] = stated
    elif turned is not None and all_dim is not None:
        factor = section.number("factor")
        shape["magnitude"] = yarn_magnitude(factor, turned) / yarn_magnitude(factor, all_dim)
    return shape


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """Return yarn's multiplier of queries and keys in a context stretched by ``factor``: ``0.1 w ln(factor) + 1``."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0
