"""``config.json`` of somebody's engine checkpoint, read: the model it describes, and how its files share the weights.

The model is given back as the ``config.json`` of its Hugging Face family, which the kit's own reader then reads; what
the one has no word for in the other is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trtllm_kit.checkpoint.rank_split import Embedding
from trtllm_kit.errors import ModelConfigError, UnknownArchitecture
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream.trtllm_checkpoint import (
    architecture_of,
    architectures,
    described_model,
    neutral_values,
    normalises,
)

_ROPE = "rope_gpt_neox"
_ACTIVATIONS = ("silu", "swish", "swiglu")
_DTYPES = ("bfloat16", "float16", "float32")
_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")
_MOST_RANKS = 1024


@dataclass(frozen=True)
class Described:
    """What ``config.json`` of an engine's checkpoint says."""

    word: str
    """Its own word for the architecture: that of drafting heads names them and not what they draft for."""
    config: Mapping[str, Any]
    """The same model as Hugging Face's ``config.json``, without what is settled later (ties, tokens)."""
    split: Split
    embedding: Embedding
    shares_embedding: bool
    """The head may be left out of the files, since it is the embedding."""
    states_rope: bool
    """It has the base of the rotary embedding; engines take 10,000 where it has none."""
    quant_algo: str | None
    kv_algo: str | None

    @property
    def vocab(self) -> int:
        """Rows of the embedding, those included that some makers fill up."""
        return int(self.config["vocab_size"])


def read_described(document: Mapping[str, Any], where: str, names: Collection[str]) -> Described:
    """Read it; raises ``UnknownArchitecture``, and ``ModelConfigError`` with every key that is wrong or means more.

    ``names`` are those of a rank's tensors: some makers leave it to them whether there are biases and norms of heads.
    """
    keys = Keys({**_seen(names), **{key: value for key, value in document.items() if value is not None}})
    architecture = _architecture(document, where)
    config = _model(keys, architecture)
    split = _split(keys)
    quantization = keys.inner("quantization")
    described = Described(
        word=str(document["architecture"]),
        config=config,
        split=split,
        embedding=_embedding(keys),
        shares_embedding=keys.flag("share_embedding_table", default=False)
        or keys.flag("tie_word_embeddings", default=False),
        states_rope=document.get("rotary_base") is not None,
        quant_algo=_text(quantization, "quant_algo"),
        kv_algo=_text(quantization, "kv_cache_quant_algo"),
    )
    _require_neutral(keys)
    if keys.problems:
        raise ModelConfigError(
            f"{where} describes a checkpoint that trtkit does not bring back",
            why=f"{len(keys.problems)} of its keys are missing, have no meaning, or ask for arithmetic that no "
            f"{architecture} of Hugging Face has",
            hint="give the folder as its converter wrote it",
            problems=tuple(map(str, keys.problems)),
        )
    return described


def _seen(names: Collection[str]) -> dict[str, bool]:
    """Return what the tensors say of keys that may be left out."""
    ends = {
        "attn_bias": "attention.qkv.bias",
        "mlp_bias": "mlp.fc.bias",
        "qk_layernorm": "attention.q_layernorm.weight",
    }
    return {key: any(name.endswith(end) for name in names) for key, end in ends.items()}


def _architecture(document: Mapping[str, Any], where: str) -> str:
    word, qwen = document.get("architecture"), document.get("qwen_type")
    found = architecture_of(word, qwen if isinstance(qwen, str) else None) if isinstance(word, str) else None
    if found is None:
        raise UnknownArchitecture(
            f"{where} describes a {word}" + (f" of qwen_type {qwen}" if qwen else ""),
            why=f"the kit knows the rank files of {', '.join(architectures())}",
            hint="download the model from its publisher, or give a checkpoint of one of these",
        )
    if document.get("moe", {}) and found == "LlamaForCausalLM" and _experts_of(document):
        return "MixtralForCausalLM"
    return found


def _experts_of(document: Mapping[str, Any]) -> bool:
    section = document.get("moe")
    return isinstance(section, Mapping) and bool(section.get("num_experts"))


def _model(keys: Keys, architecture: str) -> dict[str, Any]:
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    head_dim = keys.optional_integer("head_size") or max(hidden // heads, 1)
    keys.word("position_embedding_type", (_ROPE,))
    keys.word("hidden_act", _ACTIVATIONS)
    if (keys.optional_integer("rotary_embedding_dim") or head_dim) != head_dim:
        keys.note("rotary_embedding_dim", f"{head_dim}, all of a head")
    return {
        "architectures": [architecture],
        "model_type": described_model(architecture).hf_type,
        "torch_dtype": keys.word("dtype", _DTYPES),
        "hidden_size": hidden,
        "intermediate_size": keys.integer("intermediate_size", default=4 * hidden),
        "num_hidden_layers": keys.integer("num_hidden_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.integer("num_key_value_heads", default=heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "vocab_size": keys.integer("vocab_size"),
        "max_position_embeddings": keys.integer("max_position_embeddings"),
        "rms_norm_eps": keys.number("norm_epsilon", default=1e-5),
        "rope_theta": keys.number("rotary_base", default=10_000.0),
        "rope_scaling": _scaling(keys),
        **_of_family(keys, architecture),
    }


def _scaling(keys: Keys) -> dict[str, Any] | None:
    section = keys.inner("rotary_scaling")
    kind = section.word(section.spelling("rope_type", "type"), _KINDS, default="default")
    if kind == "default":
        return None
    return {**{key: value for key, value in section.values.items() if key != "type"}, "rope_type": kind}


def _of_family(keys: Keys, architecture: str) -> dict[str, Any]:
    bias, mlp_bias = keys.flag("attn_bias", default=False), keys.flag("mlp_bias", default=False)
    normed = keys.flag("qk_layernorm", default=False)
    if normed != architecture.startswith("Qwen3"):
        keys.note("qk_layernorm", "true of Qwen3 alone")
    if architecture == "LlamaForCausalLM":
        return {"attention_bias": bias, "mlp_bias": mlp_bias}
    if mlp_bias:
        keys.note("mlp_bias", f"false, as {architecture} has no such biases")
    if architecture.startswith("Qwen3"):
        found: dict[str, Any] = {"attention_bias": bias, "use_sliding_window": False}
        return found | (_experts(keys, architecture) if described_model(architecture).experts else {})
    if bias != (architecture == "Qwen2ForCausalLM"):
        keys.note("attn_bias", "true of Qwen2, false of Mistral and Mixtral")
    if architecture == "Qwen2ForCausalLM":
        return {"use_sliding_window": False}
    return {"sliding_window": None} | (_experts(keys, architecture) if described_model(architecture).experts else {})


def _experts(keys: Keys, architecture: str) -> dict[str, Any]:
    section = keys.inner("moe")
    count, chosen = section.integer("num_experts"), section.integer("top_k")
    mode = normalises(section.integer("normalization_mode", default=1, least=0))
    if mode is None or (architecture == "MixtralForCausalLM" and not mode):
        section.note("normalization_mode", "1 (renormalise), or 0 (none) of Qwen3")
    if architecture == "MixtralForCausalLM":
        return {"num_local_experts": count, "num_experts_per_tok": chosen}
    width = keys.optional_integer("moe_intermediate_size") or keys.integer("intermediate_size")
    return {
        "num_experts": count,
        "num_experts_per_tok": chosen,
        "norm_topk_prob": bool(mode),
        "moe_intermediate_size": width,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _split(keys: Keys) -> Split:
    mapping = keys.inner("mapping")
    sizes = (mapping.integer(f"{name}_size", default=1, most=_MOST_RANKS) for name in ("tp", "pp", "cp"))
    tensor, pipeline, context = sizes
    expert, expert_tensor = (_positive(mapping, f"moe_{name}_size") for name in ("ep", "tp"))
    expert = expert or (tensor // expert_tensor if expert_tensor else 1)
    world = mapping.integer("world_size", default=tensor * pipeline * context)
    if world != tensor * pipeline * context:
        mapping.note("world_size", f"{tensor} tensor x {pipeline} pipeline x {context} context ranks")
    if tensor % expert or expert * (expert_tensor or tensor // expert) != tensor:
        mapping.note("moe_ep_size", f"with moe_tp_size a way to share {tensor} tensor ranks")
    return Split(tensor=tensor, pipeline=pipeline, expert=max(expert, 1), context=context)


def _positive(mapping: Keys, key: str) -> int | None:
    """Return a count of ranks; upstream writes -1 for one that follows from the others."""
    return None if mapping.values.get(key) == -1 else mapping.optional_integer(key)


def _embedding(keys: Keys) -> Embedding:
    if not keys.flag("use_parallel_embedding", default=False):
        return "whole"
    return "columns" if keys.integer("embedding_sharding_dim", default=0, least=0, most=1) else "rows"


def _text(keys: Keys, key: str) -> str | None:
    value = keys.values.get(key)
    return value if isinstance(value, str) and value != "NO_QUANT" else None


def _require_neutral(keys: Keys) -> None:
    for dotted, values in neutral_values().items():
        section, _, key = dotted.rpartition(".")
        held = keys.inner(section) if section else keys
        value = held.values.get(key)
        if value is not None and value not in values:
            held.note(key, " or ".join(dict.fromkeys(str(one).lower() for one in values)))


def completed(
    config: Mapping[str, Any], *, vocab: int, tied: bool, told: Mapping[str, Any], made: ModelSpec | None
) -> dict[str, Any]:
    """Return a whole ``config.json``: with the ends, what else was told, and the windows of the converted model."""
    whole = dict(config) | {"vocab_size": vocab, "tie_word_embeddings": tied, **told}
    return whole | (_windows(made) if made is not None else {})


def _windows(made: ModelSpec) -> dict[str, Any]:
    """Return the keys of sliding windows, which no rank's configuration has."""
    windows = [attention.window for attention in made.attentions]
    width = max((window for window in windows if window), default=None)
    if width is None:
        return {}
    if made.family in ("mistral", "mixtral"):
        return {"sliding_window": width}
    return {"use_sliding_window": True, "sliding_window": width, "max_window_layers": windows.index(width)}
