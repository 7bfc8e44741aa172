"""Which LLM-API key carries which decision of a plan, so that the plan can ask whether a release has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trtllm_kit.light import dataclass
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.model import Attention, ModelSpec
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

GRAPH_KEYS: dict[str, str] = {
    "engine.cuda_graphs": "cuda_graph_config",
    "engine.cuda_graph_max_batch_size": "cuda_graph_config.max_batch_size",
    "engine.cuda_graph_padding": "cuda_graph_config.enable_padding",
}
"""Those of CUDA graphs, which are written by hand: null stands for none."""
LIMIT_KEYS = ("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width")
"""Of ``limits``, under the same names; they stand in a section of some releases."""


@dataclass(frozen=True)
class Setting:
    """A decision that is written only where it differs from what every release does without the key."""

    decision: str
    key: str
    quiet: object
    """The value for which nothing is written."""
    spell: Callable[[Any], object] = lambda value: value
    """From the plan's value to the LLM API's."""


def spelt_strategy(value: str) -> str:
    """Return an all-reduce strategy in upstream's capitals, which join all words but those of NCCL_SYMMETRIC."""
    return value.upper() if value.startswith("nccl") else value.replace("_", "").upper()


SETTINGS: tuple[Setting, ...] = (
    Setting("parallelism.attention_dp", "enable_attention_dp", quiet=False),
    Setting("engine.attention_dp_balance", "attention_dp_config.enable_balance", quiet=False),
    Setting("engine.attention_dp_timeout_iters", "attention_dp_config.timeout_iters", quiet=None),
    Setting("engine.attention_dp_wait_iters", "attention_dp_config.batching_wait_iters", quiet=None),
    Setting("runtime.enable_partial_reuse", "kv_cache_config.enable_partial_reuse", quiet=True),
    Setting("runtime.max_attention_window", "kv_cache_config.max_attention_window", quiet=(), spell=list),
    Setting("runtime.host_cache_bytes", "kv_cache_config.host_cache_size", quiet=None),
    Setting("runtime.secondary_offload_min_priority", "kv_cache_config.secondary_offload_min_priority", quiet=None),
    Setting("engine.overlap_scheduler", "disable_overlap_scheduler", quiet=True, spell=lambda value: not value),
    Setting("engine.allreduce_strategy", "allreduce_strategy", quiet="auto", spell=spelt_strategy),
    Setting("engine.autotuner", "enable_autotuner", quiet=True),
    Setting("engine.moe_backend", "moe_config.backend", quiet="auto", spell=str.upper),
    Setting("engine.expert_slots", "moe_config.load_balancer.num_slots", quiet=None),
    Setting("engine.min_latency", "enable_min_latency", quiet=False),
    Setting("engine.stream_interval", "stream_interval", quiet=1),
)
"""In the order they are written."""


def spelt(value: object) -> str:
    """Return a setting's value as a profile spells it."""
    if value is None or value == ():
        return "null" if value is None else "auto"
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(plan: Plan) -> Iterator[tuple[Setting, object]]:
    """Yield the settings a plan writes, each with its value in upstream's spelling."""
    decided = dict(plan.decisions())
    for setting in SETTINGS:
        value = decided[setting.decision].value if setting.decision in decided else setting.quiet
        if value != setting.quiet:
            yield setting, setting.spell(value)


def attention_windows(model: ModelSpec, max_seq_len: int) -> tuple[int, ...]:
    """Return tokens the KV cache keeps for each layer (one number when all agree); empty when no window is shorter.

    And for compressed attention, whose cache manager has the window from the model and keeps what is beyond it.
    """
    if any(attention.compression is not None for attention in model.attentions):
        return ()
    windows = tuple(
        layer.mixer.window
        if isinstance(layer.mixer, Attention) and layer.mixer.window is not None and holds_window_only(layer.mixer.kind)
        else max_seq_len
        for layer in model.layers
    )
    if all(window >= max_seq_len for window in windows):
        return ()
    return windows[:1] if len(set(windows)) == 1 else tuple(min(window, max_seq_len) for window in windows)
