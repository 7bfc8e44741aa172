"""Every architecture that the kit reads, with the reader of its files, which is imported when it is asked for.

A verb reads one model, of one family; the modules of the others are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_rope import read_rope
from trtllm_kit.spec.model import Family as FamilyName
from trtllm_kit.spec.model import Layer, Rope


class Family(NamedTuple):
    """How the files of one architecture are read."""

    name: FamilyName
    layers: Callable[[Keys], tuple[Layer, ...]]
    theta: float = 10_000.0
    """Rope base when the file states none: the ``default_theta`` of the family in transformers."""
    wrapped: bool = False
    """The text model stands in ``text_config``."""
    prefix: str = ""
    """What decoder tensor names begin with, and the head's has nothing before it; else as transformers 4 had them."""
    neighbours: bool = False
    """The rope turns neighbours of a head, not its two halves."""
    dtype: str | None = None
    """Of the 16-bit weights, where the family's own files state none."""
    activations: tuple[str, ...] = ("silu", "swish")
    """Names of the family's activation, the first when the file states none."""
    rope: Callable[..., Rope] = read_rope
    defaults: Mapping[str, Any] = {}
    """What the configuration class fills in, where published files leave it out."""
    facts: Callable[[Keys], dict[str, Any]] = lambda _: {}
    """Reads what the family states of the whole model."""


Group = Mapping[str, Family]
_visual = partial(Family, wrapped=True, prefix="model.language_model.")


def family(architecture: str) -> Family:
    """Return how the files of an architecture of ``FAMILIES`` are read; raises ``KeyError`` for any other."""
    for group, names in _GROUPS:
        if architecture in names:
            return group()[architecture]
    raise KeyError(architecture)


def _plain() -> Group:
    from trtllm_kit.spec import hf_families as read

    llama4 = partial(Family, "llama4", read.read_llama4, theta=5e5, neighbours=True)
    return {
        "LlamaForCausalLM": Family("llama", read.read_llama),
        "MistralForCausalLM": Family("mistral", read.read_mistral),
        "MixtralForCausalLM": Family("mixtral", read.read_mixtral, theta=1e6),
        "Qwen2ForCausalLM": Family("qwen2", read.read_qwen2),
        "Qwen3ForCausalLM": Family("qwen3", read.read_qwen3),
        "Qwen3MoeForCausalLM": Family("qwen3_moe", read.read_qwen3_moe),
        "Llama4ForCausalLM": llama4(),
        "Llama4ForConditionalGeneration": llama4(wrapped=True),
    }


def _deepseek() -> Group:
    from trtllm_kit.spec.hf_deepseek import prediction_layers, read_deepseek_v3

    def facts(keys: Keys) -> dict[str, Any]:
        return {"prediction_layers": prediction_layers(keys)}

    v3 = partial(Family, "deepseek_v3", read_deepseek_v3, neighbours=True, facts=facts)
    return {"DeepseekV3ForCausalLM": v3(), "KimiK25ForConditionalGeneration": v3(wrapped=True)}


def _sparse() -> Group:
    from trtllm_kit.spec import hf_deepseek_sparse as read

    return {
        "DeepseekV32ForCausalLM": Family(
            "deepseek_v32", read.read_deepseek_v32, neighbours=True, facts=read.deepseek_v32_facts
        ),
        "GlmMoeDsaForCausalLM": Family(
            "glm_moe_dsa", read.read_glm_moe_dsa, neighbours=True, facts=read.glm_moe_dsa_facts
        ),
    }


def _deepseek_v4() -> Group:
    from trtllm_kit.spec import hf_deepseek_v4 as read

    return {
        "DeepseekV4ForCausalLM": Family(
            "deepseek_v4",
            read.read_deepseek_v4,
            neighbours=True,
            rope=read.read_deepseek_v4_rope,
            defaults=read.DEEPSEEK_V4_DEFAULTS,
            facts=read.deepseek_v4_facts,
        )
    }


def _kimi() -> Group:
    from trtllm_kit.spec.hf_kimi import kimi_facts, read_kimi_linear

    return {
        "KimiK3ForConditionalGeneration": Family(
            "kimi_linear", read_kimi_linear, neighbours=True, wrapped=True, activations=("situ",), facts=kimi_facts
        )
    }


def _minimax() -> Group:
    from trtllm_kit.spec.hf_minimax import read_minimax_m2
    from trtllm_kit.spec.hf_minimax_sparse import minimax_m3_facts, read_minimax_m3

    return {
        "MiniMaxM2ForCausalLM": Family("minimax_m2", read_minimax_m2, theta=5e6),
        "MiniMaxM3SparseForConditionalGeneration": Family(
            "minimax_m3", read_minimax_m3, theta=5e6, wrapped=True, activations=("swigluoai",), facts=minimax_m3_facts
        ),
    }


def _gemma() -> Group:
    from trtllm_kit.spec import hf_gemma as read

    gemma = partial(Family, activations=("gelu_pytorch_tanh",), facts=read.gemma_facts)
    gemma3 = partial(
        gemma, "gemma3", read.read_gemma3, theta=1e6, rope=read.read_gemma3_rope, defaults=read.GEMMA3_DEFAULTS
    )
    return {
        "Gemma2ForCausalLM": gemma("gemma2", read.read_gemma2, defaults=read.GEMMA2_DEFAULTS),
        "Gemma3ForCausalLM": gemma3(),
        "Gemma3ForConditionalGeneration": gemma3(wrapped=True),
    }


def _gemma4() -> Group:
    from trtllm_kit.spec import hf_gemma4 as read

    return {
        "Gemma4ForConditionalGeneration": _visual(
            "gemma4",
            read.read_gemma4,
            theta=1e6,
            rope=read.read_gemma4_rope,
            activations=("gelu_pytorch_tanh",),
            facts=read.gemma4_facts,
            defaults=read.GEMMA4_DEFAULTS,
        )
    }


def _phi() -> Group:
    from trtllm_kit.spec.hf_phi import read_phi3, read_phi3_rope

    return {"Phi3ForCausalLM": Family("phi3", read_phi3, rope=read_phi3_rope)}


def _gpt_oss() -> Group:
    from trtllm_kit.spec.hf_gpt_oss import activation_limit, read_gpt_oss

    def facts(keys: Keys) -> dict[str, Any]:
        return {"activation": "clipped_swiglu", "activation_limit": activation_limit(keys)}

    return {"GptOssForCausalLM": Family("gpt_oss", read_gpt_oss, theta=1.5e5, dtype="bfloat16", facts=facts)}


def _qwen3_5() -> Group:
    from trtllm_kit.spec import hf_qwen3_5 as read

    qwen3_5 = partial(_visual, theta=1e7, rope=read.read_mrope, facts=read.qwen3_5_facts)
    return {
        "Qwen3VLForConditionalGeneration": _visual("qwen3_vl", read.read_qwen3_vl, theta=5e6, rope=read.read_mrope),
        "Qwen3VLMoeForConditionalGeneration": _visual(
            "qwen3_vl_moe", read.read_qwen3_vl_moe, theta=5e6, rope=read.read_mrope
        ),
        "Qwen3_5ForConditionalGeneration": qwen3_5("qwen3_5", read.read_qwen3_5),
        "Qwen3_5MoeForConditionalGeneration": qwen3_5("qwen3_5_moe", read.read_qwen3_5_moe),
    }


def _nemotron() -> Group:
    from trtllm_kit.spec.hf_nemotron import nemotron_h_facts, read_nemotron_h, read_nemotron_nas

    return {
        "NemotronHForCausalLM": Family(
            "nemotron_h", read_nemotron_h, activations=("relu2",), facts=nemotron_h_facts, prefix="backbone."
        ),
        "DeciLMForCausalLM": Family("nemotron_nas", read_nemotron_nas),
    }


def _mimo() -> Group:
    from trtllm_kit.spec import hf_mimo as read

    return {
        "MiMoForCausalLM": Family("mimo", read.read_mimo, facts=read.mimo_facts),
        "MiMoV2FlashForCausalLM": Family(
            "mimo_v2", read.read_mimo_v2, theta=5e6, rope=read.read_mimo_v2_rope, defaults=read.MIMO_V2_DEFAULTS
        ),
    }


def _step() -> Group:
    from trtllm_kit.spec.hf_step import STEP_DEFAULTS, read_step, step_facts

    return {"Step3p7FlashForCausalLM": Family("step3", read_step, facts=step_facts, defaults=STEP_DEFAULTS)}


_GROUPS: tuple[tuple[Callable[[], Group], tuple[str, ...]], ...] = (
    (_plain, (
        "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM", "Llama4ForCausalLM", "Llama4ForConditionalGeneration",
    )),
    (_deepseek, ("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration")),
    (_sparse, ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")),
    (_deepseek_v4, ("DeepseekV4ForCausalLM",)),
    (_kimi, ("KimiK3ForConditionalGeneration",)),
    (_minimax, ("MiniMaxM2ForCausalLM", "MiniMaxM3SparseForConditionalGeneration")),
    (_gemma, ("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")),
    (_gemma4, ("Gemma4ForConditionalGeneration",)),
    (_phi, ("Phi3ForCausalLM",)),
    (_gpt_oss, ("GptOssForCausalLM",)),
    (_qwen3_5, (
        "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    )),
    (_nemotron, ("NemotronHForCausalLM", "DeciLMForCausalLM")),
    (_mimo, ("MiMoForCausalLM", "MiMoV2FlashForCausalLM")),
    (_step, ("Step3p7FlashForCausalLM",)),
)  # fmt: skip
FAMILIES: tuple[str, ...] = tuple(name for _, names in _GROUPS for name in names)
"""Every architecture the kit reads, by its name in ``architectures``."""
