"""What NVIDIA ModelOpt does not do with the formats it searches, told before it is started."""

from __future__ import annotations

from trtllm_kit.errors import FormatNotMade
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import MADE_BY_MODELOPT
from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.upstream.quant_algos import Layout, exported_beside_experts


def searched_problem(model: ModelSpec, formats: Formats, layout: Layout) -> FormatNotMade | None:
    """Return why ModelOpt does not make these weights of a model; None when it does, or is not needed.

    Experts that stay in 16 bit are in the way as much as others: the exporter looks for the linears of each.
    """
    searched = [chosen for chosen in formats.used if chosen in MADE_BY_MODELOPT]
    if formats.passed_through or not searched:
        return None
    if not any(isinstance(layer.feed_forward, Experts) for layer in model.layers):
        return None
    if exported_beside_experts(searched[0], layout):
        return None
    return FormatNotMade(
        f"NVIDIA ModelOpt does not export {searched[0]} of a model with experts",
        why=f"{model.architecture} has experts, on which the exporter of version 0.47 fails",
        hint="set quantization.weights: fp8",
    )
