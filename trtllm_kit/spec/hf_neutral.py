"""What ``config.json`` holds beyond what a reader asked for: ignored, required to be neutral, or refused.

A key that cannot change the forward pass is ignored. A key that is known to change it must have its neutral
value. A key the kit has never seen is refused when its name speaks of arithmetic: an ignored multiplier would
give a model that runs and writes nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtllm_kit.spec.hf_keys import Keys, as_json

MODEL_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "alibi": (False,),
    "attention_bias": (False,),
    "attention_multiplier": (),
    "attn_logit_softcapping": (),
    "clip_qkv": (),
    "embedding_multiplier": (1,),
    "final_logit_softcapping": (),
    "full_attn_mod": (1,),
    "interpolate_factor": (1,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "lm_head_bias": (False,),
    "mlp_bias": (False,),
    "mlp_only_layers": ([],),
    "num_nextn_predict_layers": (0,),
    "original_max_position_embeddings": (),
    "partial_rotary_factor": (1,),
    "qk_layernorm": (False,),
    "query_pre_attn_scalar": (),
    "residual_multiplier": (1,),
    "rope_interleaved": (False,),
    "rotary_pct": (1,),
    "use_alibi": (False,),
    "use_parallel_residual": (False,),
    "use_qk_norm": (False,),
    "use_sliding_window": (False,),
}
"""Keys that change the forward pass, with the values (besides null) that leave it as the kit computes it."""

ROPE_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "attention_factor": (),
    "beta_fast": (32,),
    "beta_slow": (1,),
    "factor": (1,),
    "mscale": (),
    "mscale_all_dim": (),
    "partial_rotary_factor": (1,),
    "truncate": (True,),
}
"""The same for the rope section; its other keys are refused whatever their name."""

_HARMLESS = frozenset({
    "_attn_implementation", "_attn_implementation_autoset", "_flash_attn_2_enabled", "add_cross_attention",
    "attention_dropout", "attn_implementation", "attn_pdrop", "experts_implementation", "is_llama_config",
    "max_window_layers", "num_labels", "output_attentions", "output_router_logits", "pretraining_tp",
    "resid_pdrop", "router_aux_loss_coef", "router_jitter_noise", "temperature",
    "use_flash_attention", "use_flash_attn",
})  # fmt: skip
"""Keys whose names speak of arithmetic, but that act in training, in logging or on how a kernel is chosen."""

_ARITHMETIC = frozenset({
    "act", "activation", "alibi", "attention", "attn", "bias", "cap", "clip", "conv", "depth", "embedding",
    "embeddings", "expert", "experts", "head", "heads", "kv", "latent", "layer", "layers", "layernorm", "logit",
    "logits", "lora", "mamba", "mlp", "moe", "multiplier", "norm", "normalization", "position", "positions", "qk",
    "qkv", "query", "residual", "rope", "rotary", "router", "routing", "scale", "scaling", "shared", "sink",
    "sinks", "sliding", "softcap", "softcapping", "ssm", "temperature", "window",
})  # fmt: skip
"""Words of key names that speak of arithmetic."""


def check_model_rest(keys: Keys) -> None:
    """Note every unread key of a model's mapping that may change its arithmetic."""
    for key, value in keys.unread():
        if key in MODEL_NEUTRAL:
            _require_neutral(keys, key, value, MODEL_NEUTRAL[key])
        elif key not in _HARMLESS and value not in (False, "", [], {}) and _ARITHMETIC.intersection(key.split("_")):
            keys.note(key, "no such key: by its name it may change the arithmetic, and the kit does not know it")


def check_rope_rest(keys: Keys) -> None:
    """Note every unread key of a rope section that is not neutral."""
    for key, value in keys.unread():
        _require_neutral(keys, key, value, ROPE_NEUTRAL.get(key, ()))


def _require_neutral(keys: Keys, key: str, value: object, neutral: tuple[object, ...]) -> None:
    if value not in neutral:
        allowed = " or ".join(as_json(one) for one in (*neutral, None))
        keys.note(key, f"{allowed}, the only arithmetic the kit does here")
