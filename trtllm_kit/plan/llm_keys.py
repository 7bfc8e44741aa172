"""Which LLM-API key carries which decision of a plan, so that the plan can ask whether a release has it."""

from __future__ import annotations

from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream.memory import holds_window_only

LLM_API_KEYS: dict[str, str] = {
    "quantization.kv_cache": "kv_cache_config.dtype",
    "parallelism.tensor": "tensor_parallel_size",
    "parallelism.pipeline": "pipeline_parallel_size",
    "parallelism.expert": "moe_expert_parallel_size",
    "runtime.free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "runtime.tokens_per_block": "kv_cache_config.tokens_per_block",
    "runtime.enable_block_reuse": "kv_cache_config.enable_block_reuse",
    "runtime.scheduler_policy": "scheduler_config.capacity_scheduler_policy",
    "runtime.chunked_prefill": "enable_chunked_prefill",
}
"""Dotted key of a decision to the dotted key of the LLM API's YAML."""


def attention_windows(model: ModelSpec, max_seq_len: int) -> tuple[int, ...]:
    """Return tokens the KV cache keeps for each layer (one number when all agree); empty when no window is shorter."""
    windows = tuple(
        layer.attention.window
        if layer.attention.window is not None and holds_window_only(layer.attention.kind)
        else max_seq_len
        for layer in model.layers
    )
    if all(window >= max_seq_len for window in windows):
        return ()
    return windows[:1] if len(set(windows)) == 1 else tuple(min(window, max_seq_len) for window in windows)
