"""Keys nobody asked for: ignored, required to be neutral, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.hf_neutral import MODEL_NEUTRAL

from .configs import read


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention_multiplier", 0.015625),
        ("embedding_multiplier", 12.0),
        ("residual_multiplier", 0.22),
        ("logits_scaling", 8.0),
        ("logit_scale", 0.0625),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("query_pre_attn_scalar", 256),
        ("rotary_pct", 0.25),
        ("use_qk_norm", True),
        ("rope_interleaved", True),
        ("num_nextn_predict_layers", 1),
        ("original_max_position_embeddings", 4096),
        ("clip_qkv", 8.0),
        ("mlp_only_layers", [0]),
        ("some_new_attention_gate", "sigmoid"),
        ("block_residual_factor", 0.5),
        ("num_shared_experts", 2),
    ],
)
def test_a_key_that_changes_the_arithmetic_is_refused_by_name(key: str, value: Any) -> None:
    """Known or new, a key that speaks of arithmetic and is not neutral is an error."""
    with pytest.raises(ModelConfigError, match=f"config.json: {key} is "):
        read("llama", **{key: value})


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in MODEL_NEUTRAL.items() for value in (*values, None)]
)
def test_neutral_values_pass(key: str, value: Any) -> None:
    """A key of the table with a neutral value, or null, leaves the model as it is."""
    assert read("llama") == read("llama", **{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("_name_or_path", "somewhere"),
        ("auto_map", {"AutoModel": "x"}),
        ("attention_dropout", 0.1),
        ("initializer_range", 0.02),
        ("pretraining_tp", 2),
        ("use_cache", True),
        ("pad_token_id", 0),
        ("router_aux_loss_coef", 0.001),
        ("output_attentions", True),
        ("_attn_implementation_autoset", True),
        ("is_llama_config", True),
        ("unsloth_fixed", True),
        ("transformers.js_config", {"kv_cache_dtype": {}}),
        ("some_new_attention_gate", False),
        ("extra_expert_layers", []),
        ("max_window_layers", 28),
    ],
)
def test_keys_without_effect_are_ignored(key: str, value: Any) -> None:
    """Training, logging and bookkeeping keys, and switched-off ones, change nothing."""
    assert read("llama") == read("llama", **{key: value})


def test_the_message_says_which_value_would_do() -> None:
    """A known key is refused with its neutral values."""
    with pytest.raises(ModelConfigError) as caught:
        read("llama", residual_multiplier=0.22)

    assert "expected 1 or null, the only arithmetic the kit does here" == caught.value.why
