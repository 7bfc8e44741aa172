"""Rotary position embedding as ``config.json`` spells it.

Up to transformers 4 a model has ``rope_theta`` and ``rope_scaling`` (whose kind is ``type`` or ``rope_type``);
from 5 on one ``rope_parameters`` holds all of it.
"""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_neutral import check_rope_rest
from trtllm_kit.spec.model import Rope

_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")


def read_rope(keys: Keys, default_theta: float) -> Rope:
    """Read the rope of a model; ``default_theta`` is the base of its family when the file states none."""
    section = _section(keys)
    inner = section.optional_number("rope_theta")
    outer = keys.optional_number("rope_theta")
    if inner is not None and outer is not None and inner != outer:
        keys.note("rope_theta", f"the rope_theta of the rope section, {inner:g}")
    kind = section.word(section.spelling("rope_type", "type"), _KINDS, default="default")
    rope = Rope.model_validate({"theta": inner or outer or default_theta, "kind": kind} | _scaling(section, kind))
    check_rope_rest(section)
    return rope


def _section(keys: Keys) -> Keys:
    """Return the one rope section; two that differ are a problem."""
    name = keys.spelling("rope_parameters", "rope_scaling")
    return Keys(keys.section(name) or {}, f"{name}.", keys.problems)


def _scaling(section: Keys, kind: str) -> dict[str, Any]:
    if kind == "default":
        return {}
    scaling: dict[str, Any] = {"factor": section.number("factor")}
    if kind in ("llama3", "yarn"):
        scaling["original_max_position"] = section.integer("original_max_position_embeddings")
    if kind == "llama3":
        scaling["low_freq_factor"] = section.number("low_freq_factor")
        scaling["high_freq_factor"] = section.number("high_freq_factor")
    return scaling
