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


_QWEN = Vision(("model.visual.",), ("model.visual.blocks.0.attn.qkv",))
_KIMI = Vision(("vision_tower.", "mm_projector."), ("vision_tower.encoder.blocks.0.wqkv", "mm_projector.linear_1"))
"""Of Kimi-K2.5, whose text part is a DeepSeek-V3, and of K3."""
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
    "deepseek_v3": _KIMI,
    "kimi_linear": _KIMI,
    "minimax_m3": Vision(
        ("vision_tower.", "multi_modal_projector.", "patch_merge_mlp."),
        ("vision_tower", "multi_modal_projector", "patch_merge_mlp"),
    ),
    "qwen3_vl": _QWEN,
    "qwen3_vl_moe": _QWEN,
    "qwen3_5": _QWEN,
    "qwen3_5_moe": _QWEN,
    "gemma4": Vision(
        ("model.vision_tower.", "model.embed_vision."),
        ("model.vision_tower.encoder.layers.0.self_attn.q_proj.linear", "model.embed_vision.embedding_projection"),
    ),
}


def vision_of(model: ModelSpec) -> Vision:
    """Return the vision part that checkpoints of a family may have, an empty one for a family that has none."""
    return _VISION.get(model.family, Vision())


def has_vision(model: ModelSpec) -> bool:
    """Whether the architecture is the one with a vision part."""
    return model.architecture.endswith("ForConditionalGeneration")
