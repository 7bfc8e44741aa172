"""What a plan asks of an engine's checkpoint: TensorRT-LLM's own layout, cut into ranks for one release."""

from __future__ import annotations

from dataclasses import replace

from trtllm_kit.light import dataclass
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.quantization import Maker
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream.quant_algos import Layout
from trtllm_kit.upstream.trtllm_build import mode_of

LAYOUT: Layout = "tensorrt_llm"


@dataclass(frozen=True)
class RankOrder:
    """What a conversion to this layout is asked for."""

    model: ModelSpec
    formats: Formats
    split: Split
    release: str
    maker: Maker = "native"
    """Who makes the weights; the formats that are searched need ModelOpt."""
    heads: str = ""
    """Speculative mode whose heads the checkpoint must hold; empty for none, and for modes without heads."""


def order_of(plan: Plan) -> RankOrder:
    """Return what a plan asks of its checkpoint."""
    split = plan.parallelism
    return RankOrder(
        model=plan.model,
        formats=plan.quantization.formats,
        split=replace(split.split, replicas=1),
        release=plan.release.value,
        maker=plan.calibration.maker,
        heads=heads_of(plan),
    )


def heads_of(plan: Plan) -> str:
    """Return the speculative mode of a plan where heads in the checkpoint draft; empty for every other plan."""
    chosen = plan.build.options.get("--speculative_decoding_mode") if plan.build else None
    mode = mode_of(plan.release.value, str(chosen.value)) if chosen else None
    return mode.mode if mode is not None and mode.heads else ""
