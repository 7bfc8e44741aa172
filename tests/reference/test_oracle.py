"""The forward pass against Hugging Face transformers in float32, for every family and rope kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.load import load_reference

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch and transformers")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch and transformers")

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONG = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.8, 2.5],
    "long_factor": [1.0, 1.5, 2.5, 4.0, 9.0, 20.0],
}
PART = {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 128}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with tied head": ("llama", {"tie_word_embeddings": True}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama with head_dim of its own": ("llama", {"head_dim": 32}),
    "llama without grouping": ("llama", {"num_key_value_heads": 4}),
    "llama with linear rope": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama with llama3 rope": ("llama", {"rope_scaling": LLAMA3}),
    "llama with yarn rope": (
        "llama",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}},
    ),
    "mistral": ("mistral", {}),
    "mistral with a sliding window": ("mistral", {"sliding_window": 16}),
    "qwen2": ("qwen2", {}),
    "qwen2 with late windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    "qwen3": ("qwen3", {}),
    "qwen3_moe": ("qwen3_moe", {}),
    "qwen3_moe with dense layers": ("qwen3_moe", {"mlp_only_layers": [0], "norm_topk_prob": False}),
    "mixtral": ("mixtral", {}),
    "mixtral with a sliding window": ("mixtral", {"sliding_window": 16}),
    "llama4": ("llama4", {"num_hidden_layers": 4}),
    "gemma2": ("gemma2", {}),
    "gemma2 with short windows": ("gemma2", {"sliding_window": 16, "num_hidden_layers": 3}),
    "gemma2 without caps": (
        "gemma2",
        {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False},
    ),
    "gemma3": ("gemma3", {}),
    "gemma3 with short windows": (
        "gemma3",
        {"sliding_window": 16, "num_hidden_layers": 4, "sliding_window_pattern": 3, "final_logit_softcapping": 9.0},
    ),
    "gemma3 with linear rope": ("gemma3", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "phi3": ("phi3", {}),
    "phi3 with a sliding window": ("phi3", {"sliding_window": 16}),
    "phi3 with part of the heads turned": ("phi3", {"partial_rotary_factor": 0.5, "tie_word_embeddings": True}),
    "phi3 with long rope within the trained length": ("phi3", PART | {"rope_scaling": LONG}),
    "phi3 with long rope beyond it": ("phi3", PART | {"rope_scaling": LONG, "original_max_position_embeddings": 64}),
    "deepseek_v3": ("deepseek_v3", {"num_hidden_layers": 3}),
    "deepseek_v3 with one projection of the query": ("deepseek_v3", {"q_lora_rank": None, "first_k_dense_replace": 0}),
    "deepseek_v3 with one group and plain rope": ("deepseek_v3", {"n_group": 1, "topk_group": 1, "rope_scaling": None}),
    "gpt_oss": ("gpt_oss", {}),
    "gpt_oss with short windows": ("gpt_oss", {"sliding_window": 16}),
    "gpt_oss without attention biases": ("gpt_oss", {"attention_bias": False}),
    "llama4 with short chunks": (
        "llama4",
        {"num_hidden_layers": 4, "attention_chunk_size": 16, "floor_scale": 8, "num_experts_per_tok": 2},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers_within_float_error(case: str, tmp_path: Path) -> None:
    """Prompt and single-token logits of a random model agree with transformers to float32 rounding."""
    family, overrides = CASES[case]
    folder = write_tiny_model(tmp_path, family, seed=3, **overrides)
    tokens = np.random.default_rng(1).integers(0, 272, size=70)
    expected = transformers_logits(folder, tokens, family)
    model = load_reference(folder, longest=len(tokens))
    cache = model.new_cache()
    prompt = model.forward(tokens[:60], cache)
    steps = [model.forward(tokens[at : at + 1], cache) for at in range(60, 70)]
    assert float(np.abs(expected).max()) > 1.0
    np.testing.assert_allclose(np.concatenate([prompt, *steps]), expected, atol=2e-4, rtol=2e-4)


def transformers_logits(folder: Path, tokens: Any, family: str) -> Any:
    """Run transformers with eager attention in float32 over all tokens at once."""
    kind = transformers.Llama4ForConditionalGeneration if family == "llama4" else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor(tokens)[None]).logits[0].numpy()
