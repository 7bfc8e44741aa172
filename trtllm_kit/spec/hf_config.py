"""From ``config.json`` to a ``ModelSpec``, with all problems of the file at once.

``hf_families`` has one small reader a family. A key that is absent has the default of its family's configuration
class in Hugging Face transformers (``models/<family>/configuration_<family>.py``, read at release 5.14) where that
default holds for the whole family: no bias, untied embeddings, the rope base. Sizes and counts are required, but
for those that a family's published files leave out (Gemma 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from trtllm_kit.errors import ModelConfigError, UnknownArchitecture
from trtllm_kit.spec.hf_deepseek import prediction_layers, read_deepseek_v3
from trtllm_kit.spec.hf_deepseek_sparse import (
    deepseek_v32_facts,
    glm_moe_dsa_facts,
    read_deepseek_v32,
    read_glm_moe_dsa,
)
from trtllm_kit.spec.hf_deepseek_v4 import (
    DEEPSEEK_V4_DEFAULTS,
    deepseek_v4_facts,
    read_deepseek_v4,
    read_deepseek_v4_rope,
)
from trtllm_kit.spec.hf_families import (
    read_llama,
    read_llama4,
    read_mistral,
    read_mixtral,
    read_qwen2,
    read_qwen3,
    read_qwen3_moe,
)
from trtllm_kit.spec.hf_gemma import (
    GEMMA2_DEFAULTS,
    GEMMA3_DEFAULTS,
    gemma_facts,
    read_gemma2,
    read_gemma3,
    read_gemma3_rope,
)
from trtllm_kit.spec.hf_gemma4 import GEMMA4_DEFAULTS, gemma4_facts, read_gemma4, read_gemma4_rope
from trtllm_kit.spec.hf_gpt_oss import activation_limit, read_gpt_oss
from trtllm_kit.spec.hf_keys import MOST_PROBLEMS, KeyProblem, Keys, as_json
from trtllm_kit.spec.hf_kimi import kimi_facts, read_kimi_linear
from trtllm_kit.spec.hf_mimo import MIMO_V2_DEFAULTS, mimo_facts, read_mimo, read_mimo_v2, read_mimo_v2_rope
from trtllm_kit.spec.hf_minimax import read_minimax_m2
from trtllm_kit.spec.hf_minimax_sparse import minimax_m3_facts, read_minimax_m3
from trtllm_kit.spec.hf_nemotron import nemotron_h_facts, read_nemotron_h, read_nemotron_nas
from trtllm_kit.spec.hf_neutral import check_model_rest
from trtllm_kit.spec.hf_phi import read_phi3, read_phi3_rope
from trtllm_kit.spec.hf_qwen3_5 import (
    qwen3_5_facts,
    read_mrope,
    read_qwen3_5,
    read_qwen3_5_moe,
    read_qwen3_vl,
    read_qwen3_vl_moe,
)
from trtllm_kit.spec.hf_rope import read_rope
from trtllm_kit.spec.hf_step import STEP_DEFAULTS, read_step, step_facts
from trtllm_kit.spec.hf_stored import EXPERT_TYPE, MODELOPT, read_stored, unsound_list
from trtllm_kit.spec.model import Family as FamilyName
from trtllm_kit.spec.model import Layer, ModelSpec, Rope

_EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "norm_eps", "layernorm_epsilon")
_DTYPES = ("bfloat16", "float16", "float32")


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


_visual = partial(Family, wrapped=True, prefix="model.language_model.")
_qwen3_5 = partial(_visual, theta=1e7, rope=read_mrope, facts=qwen3_5_facts)
_gemma = partial(Family, activations=("gelu_pytorch_tanh",), facts=gemma_facts)
_gemma3 = partial(_gemma, "gemma3", read_gemma3, theta=1e6, rope=read_gemma3_rope, defaults=GEMMA3_DEFAULTS)


def _deepseek_facts(keys: Keys) -> dict[str, Any]:
    return {"prediction_layers": prediction_layers(keys)}


def _gpt_oss_facts(keys: Keys) -> dict[str, Any]:
    return {"activation": "clipped_swiglu", "activation_limit": activation_limit(keys)}


FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family("llama", read_llama),
    "MistralForCausalLM": Family("mistral", read_mistral),
    "MixtralForCausalLM": Family("mixtral", read_mixtral, theta=1e6),
    "Qwen2ForCausalLM": Family("qwen2", read_qwen2),
    "Qwen3ForCausalLM": Family("qwen3", read_qwen3),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", read_qwen3_moe),
    "Llama4ForCausalLM": Family("llama4", read_llama4, theta=5e5, neighbours=True),
    "Llama4ForConditionalGeneration": Family("llama4", read_llama4, theta=5e5, neighbours=True, wrapped=True),
    "DeepseekV3ForCausalLM": Family("deepseek_v3", read_deepseek_v3, neighbours=True, facts=_deepseek_facts),
    "DeepseekV32ForCausalLM": Family("deepseek_v32", read_deepseek_v32, neighbours=True, facts=deepseek_v32_facts),
    "DeepseekV4ForCausalLM": Family(
        "deepseek_v4",
        read_deepseek_v4,
        neighbours=True,
        rope=read_deepseek_v4_rope,
        defaults=DEEPSEEK_V4_DEFAULTS,
        facts=deepseek_v4_facts,
    ),
    "GlmMoeDsaForCausalLM": Family("glm_moe_dsa", read_glm_moe_dsa, neighbours=True, facts=glm_moe_dsa_facts),
    "KimiK25ForConditionalGeneration": Family(
        "deepseek_v3", read_deepseek_v3, neighbours=True, wrapped=True, facts=_deepseek_facts
    ),
    "KimiK3ForConditionalGeneration": Family(
        "kimi_linear", read_kimi_linear, neighbours=True, wrapped=True, activations=("situ",), facts=kimi_facts
    ),
    "MiniMaxM3SparseForConditionalGeneration": Family(
        "minimax_m3", read_minimax_m3, theta=5e6, wrapped=True, activations=("swigluoai",), facts=minimax_m3_facts
    ),
    "Gemma2ForCausalLM": _gemma("gemma2", read_gemma2, defaults=GEMMA2_DEFAULTS),
    "Gemma3ForCausalLM": _gemma3(),
    "Gemma3ForConditionalGeneration": _gemma3(wrapped=True),
    "Phi3ForCausalLM": Family("phi3", read_phi3, rope=read_phi3_rope),
    "GptOssForCausalLM": Family("gpt_oss", read_gpt_oss, theta=1.5e5, dtype="bfloat16", facts=_gpt_oss_facts),
    "Qwen3VLForConditionalGeneration": _visual("qwen3_vl", read_qwen3_vl, theta=5e6, rope=read_mrope),
    "Qwen3VLMoeForConditionalGeneration": _visual("qwen3_vl_moe", read_qwen3_vl_moe, theta=5e6, rope=read_mrope),
    "Qwen3_5ForConditionalGeneration": _qwen3_5("qwen3_5", read_qwen3_5),
    "Qwen3_5MoeForConditionalGeneration": _qwen3_5("qwen3_5_moe", read_qwen3_5_moe),
    "Gemma4ForConditionalGeneration": _visual(
        "gemma4",
        read_gemma4,
        theta=1e6,
        rope=read_gemma4_rope,
        activations=("gelu_pytorch_tanh",),
        facts=gemma4_facts,
        defaults=GEMMA4_DEFAULTS,
    ),
    "NemotronHForCausalLM": Family(
        "nemotron_h",
        read_nemotron_h,
        activations=("relu2",),
        facts=nemotron_h_facts,
        prefix="backbone.",
    ),
    "DeciLMForCausalLM": Family("nemotron_nas", read_nemotron_nas),
    "MiMoForCausalLM": Family("mimo", read_mimo, facts=mimo_facts),
    "MiMoV2FlashForCausalLM": Family(
        "mimo_v2", read_mimo_v2, theta=5e6, rope=read_mimo_v2_rope, defaults=MIMO_V2_DEFAULTS
    ),
    "MiniMaxM2ForCausalLM": Family("minimax_m2", read_minimax_m2, theta=5e6),
    "Step3p7FlashForCausalLM": Family("step3", read_step, facts=step_facts, defaults=STEP_DEFAULTS),
}
"""Every architecture the kit reads, by its name in ``architectures``."""


def read_model_spec(config: Mapping[str, Any], where: str, modelopt: Mapping[str, Any] | None = None) -> ModelSpec:
    """Read the text part of a model from its ``config.json``; ``where`` names the file in messages.

    ``modelopt`` is what ``hf_quant_config.json`` beside it has as ``quantization``.

    Raises ``UnknownArchitecture``, or ``ModelConfigError`` with every key that is missing, has no meaning, or asks
    for arithmetic the kit does not do.
    """
    outer = Keys(config)
    architecture = _architecture(outer, where)
    family = FAMILIES[architecture]
    keys = (_text_part(outer) if family.wrapped else outer).completed(family.defaults)
    parts = _common(keys, family) | {"layers": family.layers(keys)} | family.facts(keys)
    parts["rope"] = family.rope(keys, family.theta, neighbours=family.neighbours)
    inline = outer if outer.values.get("quantization_config") is not None else keys
    method = _quantized_as(inline) or (None if modelopt is None else MODELOPT)
    keys.ignore("architectures", "model_type", "transformers_version")
    check_model_rest(keys)
    if outer.problems:
        raise _refusal(where, outer.problems)
    if family.prefix:
        parts |= {"prefix": family.prefix}
    elif family.wrapped:
        parts |= {"prefix": "language_model.model.", "head_name": "language_model.lm_head.weight"}
    spec = ModelSpec(family=family.name, architecture=architecture, **parts)
    if method is None:
        return spec
    stated = dict(inline.values.get("quantization_config") or {}) | {EXPERT_TYPE: keys.values.get(EXPERT_TYPE)}
    return spec.model_copy(update={"stored": read_stored(spec, method, stated, modelopt)})


def _architecture(keys: Keys, where: str) -> str:
    """Return the architecture the file names: exactly one, and one the kit knows."""
    names = keys.values.get("architectures")
    if not (isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)):
        keys.note("architectures", "a list with the name of one architecture")
        raise _refusal(where, keys.problems)
    if names[0] in FAMILIES:
        return names[0]
    raise UnknownArchitecture(
        f"{where} describes a {names[0]}",
        why=f"the kit reads {', '.join(sorted(FAMILIES))}",
        hint="use a model of one of these architectures",
    )


def _text_part(outer: Keys) -> Keys:
    """Return the keys of ``text_config``, completed by what the outer mapping states for the whole model."""
    section = outer.section("text_config")
    if section is None:
        if outer.sound("text_config"):
            outer.note("text_config", "the mapping that describes the text model")
        return outer
    text = Keys(section, "text_config.", outer.problems)
    completed = dict(section)
    for key in ("dtype", "torch_dtype", "tie_word_embeddings", "bos_token_id", "eos_token_id"):
        stated = outer.values.get(key)
        if stated is None:
            continue
        if section.get(key) is None:
            completed[key] = stated
        elif stated != section[key] and not key.endswith("_token_id"):
            text.note(key, f"the value outside text_config, {as_json(stated)}")
    return Keys(completed, "text_config.", outer.problems)


def _common(keys: Keys, family: Family) -> dict[str, Any]:
    """Read what every family states in the same way."""
    activation = keys.spelling("hidden_activation", "hidden_act", "mlp_hidden_act")
    keys.word(activation, family.activations, default=family.activations[0])
    vocab = keys.integer("vocab_size")
    return {
        "hidden": keys.integer("hidden_size"),
        "vocab": vocab,
        "max_position": keys.integer("max_position_embeddings"),
        "norm_epsilon": keys.number(keys.spelling(*_EPSILONS)),
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
        "dtype": keys.word(keys.spelling("dtype", "torch_dtype"), _DTYPES, family.dtype),
        "bos_token": next(iter(_tokens(keys, "bos_token_id", vocab)), None),
        "eos_tokens": _tokens(keys, "eos_token_id", vocab),
    }


def _tokens(keys: Keys, key: str, vocab: int) -> tuple[int, ...]:
    """Return the tokens that begin (one or none) or end (one, a list, or none) a text.

    One outside the vocabulary is refused: as a beginning it has no embedding, and as an end it never comes, so that
    every answer would run into its limit.
    """
    if key == "eos_token_id" and isinstance(keys.values.get(key), list):
        tokens = keys.integers(key) or ()
    else:
        token = keys.optional_integer(key, least=0)
        tokens = () if token is None else (token,)
    if any(token >= vocab for token in tokens) and keys.sound("vocab_size"):
        keys.note(key, f"a token of the vocabulary, 0 to {vocab - 1}")
    return tokens


def _quantized_as(keys: Keys) -> str | None:
    """Return the method of an already quantised checkpoint, or None for plain weights."""
    section = keys.section("quantization_config")
    if section is None:
        return None
    unsound = unsound_list(section)
    if unsound is not None:
        keys.note("quantization_config", f"a list of module names as its {unsound}")
    producer = section.get("producer")
    method = section.get("quant_method") or (producer.get("name") if isinstance(producer, dict) else None)
    if isinstance(method, str):
        return method
    keys.note("quantization_config", "its quant_method, or the name of its producer")
    return None


def _refusal(where: str, problems: list[KeyProblem]) -> ModelConfigError:
    """Make one error of all problems: three lines for one, a list for several."""
    hint = "correct config.json, or fetch the model's own again; drop a key only if it has no effect on the model"
    first = problems[0]
    if len(problems) == 1:
        return ModelConfigError(f"{where}: {first.key} {first.state}", why=f"expected {first.expected}", hint=hint)
    return ModelConfigError(
        f"{where} has {len(problems)} problems{' or more' if len(problems) == MOST_PROBLEMS else ''}",
        why="these keys are missing, have no meaning, or ask for arithmetic the kit does not do",
        hint=hint,
        problems=tuple(str(problem) for problem in problems),
    )
