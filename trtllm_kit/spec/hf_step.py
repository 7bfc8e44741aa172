"""The reader of StepFun's Step-3.7-Flash: windows on three of four layers, and experts.

Its files keep the experts of a layer in one tensor for each projection; the spec names them one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, layer_types, read_attention, read_dense, read_experts
from trtllm_kit.spec.model import Experts, Layer, Routing

STEP_DEFAULTS: Mapping[str, Any] = {"rms_norm_eps": 1e-5}
"""What the configuration class of Step-3.5 fills in; read in vLLM's ``transformers_utils/configs/step3p5.py``."""


def read_step(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: the first ``first_k_dense_replace`` layers are dense."""
    count = layer_count(keys)
    types = layer_types(keys, count, ("full_attention", "sliding_attention")) or ("full_attention",) * count
    full = read_attention(keys)
    slides = "sliding_attention" in types
    window = keys.integer("sliding_window") if slides else None
    local = full.model_copy(update={"kind": "sliding", "window": window})
    keys.ignore("sliding_window")
    experts, dense = _experts(keys), read_dense(keys)
    first = keys.integer("first_k_dense_replace", least=0)
    return tuple(
        Layer(mixer=local if kind == "sliding_attention" else full, feed_forward=dense if number < first else experts)
        for number, kind in enumerate(types)
    )


def step_facts(keys: Keys) -> dict[str, Any]:
    """Read the prediction layers: dense ones, counted as attending to everything, since the file does not say."""
    count = keys.integer("num_nextn_predict_layers", default=0, least=0)
    step = Layer(mixer=read_attention(keys), feed_forward=read_dense(keys))
    return {"prediction_layers": count, "prediction_pattern": (step,) if count else ()}


def _experts(keys: Keys) -> Experts:
    block = read_experts(keys, "moe_intermediate_size", "step3", normalise=True)
    keys.word("scoring_func", ("sigmoid",), default="sigmoid")
    routing = Routing(
        scoring="sigmoid",
        normalise=keys.flag("norm_expert_weight", default=True),
        choice_bias=keys.flag("use_moe_router_bias", default=False),
        scale=keys.number("moe_router_scaling_factor", default=1.0),
    )
    shared = keys.integer("n_shared_experts", default=1, least=0)
    width = keys.integer("share_expert_dim") if shared else 0
    return block.model_copy(update={"shared_intermediate": shared * width, "routing": routing})
