"""Names that a checkpoint uses: dtypes as safetensors spells them, and the scales beside a quantised tensor."""

from __future__ import annotations

from trtllm_kit.plan.quantization import module_of

DTYPE_NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""What safetensors calls the dtypes of ``config.json``."""

QUANT_CONFIG = "hf_quant_config.json"


def scale_name(tensor: str, kind: str) -> str:
    """Return the name of a tensor's ``weight_scale`` or ``input_scale``, as ModelOpt writes it.

    ``….q_proj.weight`` has ``….q_proj.weight_scale``; the fused ``….experts.down_proj`` has
    ``….experts.down_proj_weight_scale``.
    """
    return f"{module_of(tensor)}.{kind}" if tensor.endswith(".weight") else f"{tensor}_{kind}"
