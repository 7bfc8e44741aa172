"""``config.json`` and ``quant_cfg.json`` of an engine's checkpoint, with the keys that the release accepts.

Unknown keys at the top level draw a warning there; in ``mapping``, ``quantization`` and ``moe`` they are a
``TypeError``, so those have only what ``upstream.trtllm_checkpoint.strict_keys`` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from trtllm_kit import __version__
from trtllm_kit.checkpoint.layout import half_format
from trtllm_kit.plan.formats import number_format
from trtllm_kit.plan.parallelism import stages
from trtllm_kit.plan.quantization import tensor_formats
from trtllm_kit.plan.ranks import LAYOUT, RankOrder
from trtllm_kit.spec.model import Experts, ModelSpec, Rope
from trtllm_kit.spec.tensors import Role, layer_tensors
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION, kv_algo, quant_algo
from trtllm_kit.upstream.trtllm_checkpoint import (
    RankModel,
    default_of_key,
    exclusions,
    normalization_mode,
    rank_format,
    rank_model,
    vocabulary_multiple,
)

CONFIG = "config.json"
QUANT_CFG = "quant_cfg.json"
"""Format of every module, for mixed formats alone."""
_MODULES = {
    Role.QUERY: "attention.qkv",
    Role.ATTENTION_OUT: "attention.dense",
    Role.GATE: "mlp.fc",
    Role.UP: "mlp.gate",
    Role.DOWN: "mlp.proj",
}
"""What the engine calls the linear layers; q, k and v are one."""


def rank_config(order: RankOrder) -> str:
    """Return the text of ``config.json``."""
    model = order.model
    attention = model.layers[0].attention
    document: dict[str, Any] = {
        "producer": {"name": "trtllm-kit", "version": __version__},
        "architecture": model.architecture,
        "dtype": {"BF16": "bfloat16", "F16": "float16"}[half_format(model)],
        "logits_dtype": "float32",
        "num_hidden_layers": len(model.layers),
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_size": attention.head_dim,
        "hidden_size": model.hidden,
        "intermediate_size": model.layers[0].block.intermediate,
        "vocab_size": _vocabulary(order),
        "max_position_embeddings": model.max_position,
        "norm_epsilon": model.norm_epsilon,
        "hidden_act": "swiglu" if _experts(model) else model.activation,
        "position_embedding_type": "rope_gpt_neox",
        "rotary_base": model.rope.theta,
        "rotary_scaling": _scaling(model.rope),
        "qk_layernorm": attention.qk_norm == "per_head",
        "attn_bias": attention.qkv_bias,
        "mlp_bias": _mlp_bias(model),
        "use_parallel_embedding": True,
        "embedding_sharding_dim": 0,
        "mapping": _mapping(order),
        "quantization": _quantization(order),
    }
    return _json(document | _of_family(model, rank_model(model.architecture, order.release)))


def quant_cfg(order: RankOrder) -> str | None:
    """Return the text of ``quant_cfg.json``, or None where one format says all."""
    if not _mixed(order):
        return None
    layers = {module: _layer_entry(order, chosen) for module, chosen in _quantised_modules(order)}
    return _json({**_algos(order), "quantized_layers": layers})


def _mapping(order: RankOrder) -> dict[str, int]:
    split = order.split
    sizes = {"world_size": split.world_size, "tp_size": split.tensor, "pp_size": split.pipeline}
    if split.context > 1:
        sizes |= {"cp_size": split.context}
    if _experts(order.model):
        sizes |= {"moe_tp_size": split.expert_tensor, "moe_ep_size": split.expert}
    return sizes


def _quantization(order: RankOrder) -> dict[str, Any]:
    section: dict[str, Any] = _algos(order)
    if not order.formats.quantises or _mixed(order):
        return section
    (name,) = order.formats.used
    section["exclude_modules"] = [*exclusions(name, order.release), *_excluded(order, name)]
    return section | _group_size(order, name) | _of_awq(name)


def _algos(order: RankOrder) -> dict[str, str | None]:
    used = order.formats.used
    algo = MIXED_PRECISION if len(used) > 1 else _algo(order, used[0]) if used else None
    return {"quant_algo": algo, "kv_cache_quant_algo": kv_algo(order.formats.kv_cache)}


def _algo(order: RankOrder, name: str) -> str:
    return quant_algo(name, LAYOUT, order.release).algo


def _layer_entry(order: RankOrder, name: str) -> dict[str, Any]:
    return {"quant_algo": _algo(order, name), **_group_size(order, name), **_of_awq(name)}


def _group_size(order: RankOrder, name: Any) -> dict[str, int]:
    """Return the group size of a format whose file holds scales of groups."""
    row = rank_format(name, order.release)
    block = number_format(name, order.formats.group_size).block
    return {"group_size": block} if row is not None and row.packed and block > 1 else {}


def _of_awq(name: str) -> dict[str, bool]:
    """Return what is said of AWQ alone: codes around zero, and a factor of the input."""
    return {"has_zero_point": False, "pre_quant_scale": True} if name in _AWQ else {}


_AWQ = ("int4_awq", "w4a8_awq")


def _vocabulary(order: RankOrder) -> int:
    """Return the rows of the embedding, with those of zeros that some formats ask for."""
    multiple = vocabulary_multiple(order.formats.used, order.release)
    return ceil(order.model.vocab / multiple) * multiple


def _mixed(order: RankOrder) -> bool:
    return len(order.formats.used) > 1


def _quantised_modules(order: RankOrder) -> Iterator[tuple[str, str]]:
    """Yield the engine's name of every quantised module with its format; layers count from their stage's first."""
    for base, modules in _modules(order):
        yield from ((f"{base}{module}", chosen) for module, chosen in modules.items() if chosen is not None)


def _excluded(order: RankOrder, name: str) -> Iterator[str]:
    """Yield patterns for the modules that stay in 16 bit: of modules, and of the weights' own names.

    Row-wise FP8 knows attention and feed-forward as a whole, with the norm in front of each; experts are one module.
    """
    for base, modules in _modules(order):
        kept = [module for module, chosen in modules.items() if chosen is None]
        if name == "fp8_rowwise":
            yield from (f"{base}{norm}" for block, norm in _BLOCKS if any(m.startswith(block) for m in kept))
            yield from (f"{base}{block}" for block, _ in _BLOCKS if any(m.startswith(block) for m in kept))
        elif _experts(order.model):
            yield from (f"{base}{module}*" for module in kept if module.startswith("attention."))
            yield from [f"{base}mlp*"] if any(module.startswith("mlp.") for module in kept) else []
        else:
            yield from (f"{base}{module}*" for module in kept)


_BLOCKS = (("attention", "input_layernorm"), ("mlp", "post_layernorm"))


def _modules(order: RankOrder) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    """Yield the linear modules of the longest stage's layers with their formats, None for 16 bit."""
    model = order.model
    longest = max(stages(model, order.split.pipeline), key=len)
    for local, number in enumerate(longest):
        chosen = tensor_formats(model, number, order.formats)
        facts = (fact for fact in layer_tensors(model, number) if not fact.is_bias and fact.role in _MODULES)
        yield f"transformer.layers.{local}.", {_MODULES[fact.role]: chosen.get(fact.name) for fact in facts}


def _of_family(model: ModelSpec, row: RankModel | None) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    block = _experts(model)
    if block is not None:
        mode = normalization_mode(renormalises=block.routing.normalise)
        keys["moe"] = {"num_experts": block.experts, "top_k": block.per_token, "normalization_mode": mode}
    if row is not None and row.qwen_type:
        keys |= {"qwen_type": row.qwen_type, "seq_length": default_of_key("seq_length"), "use_logn_attn": False}
    if row is not None and row.qwen_type and block is not None:
        keys |= {"moe_intermediate_size": block.intermediate, "moe_shared_expert_intermediate_size": 0}
    return keys


def _experts(model: ModelSpec) -> Experts | None:
    block = model.layers[0].feed_forward
    return block if isinstance(block, Experts) else None


def _mlp_bias(model: ModelSpec) -> bool:
    return model.layers[0].block.bias


def _scaling(rope: Rope) -> dict[str, Any] | None:
    """Return the section that says how positions are stretched, with the kind under both names upstream looks for."""
    if rope.kind == "default":
        return None
    section: dict[str, Any] = {"type": rope.kind, "rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        section |= {
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_max_position,
        }
    return section


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
