"""What a multimodal checkpoint holds beside its text model: the kit does not run it, and copies it as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trtllm_kit.spec.model import Family, ModelSpec


class Vision(NamedTuple):
    """The vision part of one family."""

    prefixes: tuple[str, ...] = ()
    """What the names of its tensors begin with."""
    examples: tuple[str, ...] = ()
    """One of its modules for each prefix, which an exclude pattern may name."""


_VISION: Mapping[Family, Vision] = {
    "llama4": Vision(
        ("vision_model.", "multi_modal_projector."),
        ("vision_model.model.layers.0.self_attn.q_proj", "multi_modal_projector.linear_1"),
    ),
    "gemma3": Vision(
        ("vision_tower.", "multi_modal_projector."),
        (
            "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj",
            "multi_modal_projector.mm_input_projection_weight",
        ),
    ),
}


def vision_of(model: ModelSpec) -> Vision:
    """Return the vision part that checkpoints of a family may have, an empty one for a family that has none."""
    return _VISION.get(model.family, Vision())


def has_vision(model: ModelSpec) -> bool:
    """Whether the architecture is the one with a vision part."""
    return model.architecture.endswith("ForConditionalGeneration")
