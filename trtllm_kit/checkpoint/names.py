"""Names that a checkpoint uses: dtypes as safetensors spells them, and the scales beside a quantised tensor."""

from __future__ import annotations

from trtllm_kit.plan.quantization import module_of

DTYPE_NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""What safetensors calls the dtypes of ``config.json``."""

PART_SUFFIXES: dict[str, dict[str, str]] = {
    "tensorrt_llm": {
        "weight_scale": "weights_scaling_factor",
        "weight_scale_2": "weights_scaling_factor_2",
        "input_scale": "activation_scaling_factor",
        "pre_quant_scale": "prequant_scaling_factor",
        "kv_scale": "kv_cache_scaling_factor",
    },
}
"""What each layout calls a part of a quantised tensor, where that is not our own word for it."""

PER_CHANNEL = ("fp8_rowwise", "int8_wo", "int4_wo")
"""Formats whose ``weight_scale`` the layout of ``trtllm-build`` calls ``per_channel_scale``."""

QUANT_CONFIG = "hf_quant_config.json"
LAYER_QUANT_CONFIG = "quant_cfg.json"
"""The format of every layer, where layers differ."""


def scale_name(tensor: str, kind: str) -> str:
    """Return the name of a tensor's ``weight_scale`` or ``input_scale``, as ModelOpt writes it.

    ``….q_proj.weight`` has ``….q_proj.weight_scale``; the fused ``….experts.down_proj`` has
    ``….experts.down_proj_weight_scale``.
    """
    return f"{module_of(tensor)}.{kind}" if tensor.endswith(".weight") else f"{tensor}_{kind}"


def part_name(tensor: str, part: str, layout: str = "unified_hf", number_format: str = "") -> str:
    """Return what a layout calls one part of a quantised tensor; ``weight`` has the tensor's own name."""
    if part == "weight":
        return tensor
    if layout == "tensorrt_llm" and part == "weight_scale" and number_format in PER_CHANNEL:
        return scale_name(tensor, "per_channel_scale")
    return scale_name(tensor, PART_SUFFIXES.get(layout, {}).get(part, part))
