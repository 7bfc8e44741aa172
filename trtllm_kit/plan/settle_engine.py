"""Settle the settings of the PyTorch backend, of speculation, and of what the KV cache keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trtllm_kit.plan.asked import as_asked, source_of
from trtllm_kit.plan.llm_keys import attention_windows
from trtllm_kit.plan.memory import Sizing, memory_plan
from trtllm_kit.plan.plan import Decided, EnginePlan, RuntimePlan, SpeculationPlan
from trtllm_kit.plan.speculation import Drafting
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.spec.profile_sections import Speculation
from trtllm_kit.units import format_bytes
from trtllm_kit.upstream.combinations import Combination, combination, speculation_with
from trtllm_kit.upstream.environment import variable
from trtllm_kit.upstream.speculation import own_length, speculation_field


def drafting_of(loaded: LoadedProfile, version: str) -> Drafting | None:
    """Return the speculation that a profile's memory has to hold; None without, or where no GPU runtime drafts."""
    profile = loaded.profile
    if profile.speculation is None or profile.runtime != "tensorrt_llm":
        return None
    draft = None if isinstance(loaded.draft, str) else loaded.draft
    tokens = _draft_tokens(loaded, profile.speculation, version).value
    return Drafting(profile.speculation.model_copy(update={"draft_tokens": tokens}), version, draft)


def engine_plan(loaded: LoadedProfile, version: str) -> EnginePlan:
    """Decide the engine settings of a release."""
    wanted = loaded.profile.engine
    batch, slots = wanted.cuda_graph_max_batch_size, wanted.expert_slots
    largest = loaded.profile.limits.max_batch_size
    return EnginePlan(
        overlap_scheduler=_switch(loaded, "overlap_scheduler", overlap_obstacle(loaded.profile, version)),
        allreduce_strategy=as_asked(loaded, "engine.allreduce_strategy", wanted.allreduce_strategy),
        cuda_graphs=_switch(loaded, "cuda_graphs", graphs_obstacle(loaded.profile, version)),
        cuda_graph_max_batch_size=Decided(value=largest, source="rule", reason="as many as limits.max_batch_size")
        if batch == "auto"
        else as_asked(loaded, "engine.cuda_graph_max_batch_size", batch),
        cuda_graph_padding=as_asked(loaded, "engine.cuda_graph_padding", wanted.cuda_graph_padding),
        autotuner=as_asked(loaded, "engine.autotuner", wanted.autotuner),
        moe_backend=as_asked(loaded, "engine.moe_backend", wanted.moe_backend),
        min_latency=as_asked(loaded, "engine.min_latency", wanted.min_latency),
        stream_interval=as_asked(loaded, "engine.stream_interval", wanted.stream_interval),
        expert_slots=None if slots is None else as_asked(loaded, "engine.expert_slots", slots),
        **_balance(loaded),
    )


def _balance(loaded: LoadedProfile) -> dict[str, Any]:
    """Return what was asked of prompts that wait for other ranks."""
    wanted, names = loaded.profile.engine, ("attention_dp_balance", *_WAITS)
    asked = {name: getattr(wanted, name) for name in names}
    unset = {name for name, value in asked.items() if value is None or value is False}  # to wait for 0 steps is asked
    return {name: as_asked(loaded, f"engine.{name}", value) for name, value in asked.items() if name not in unset}


_WAITS = ("attention_dp_timeout_iters", "attention_dp_wait_iters")


def overlap_obstacle(profile: DeployProfile, version: str) -> Combination | None:
    """Return what the overlap scheduler does not go together with in that release, or None."""
    if profile.limits.max_beam_width > 1 and (known := combination("beams_with_overlap", version)):
        return known
    return speculation_with(profile.speculation.kind, "overlap", version) if profile.speculation else None


def graphs_obstacle(profile: DeployProfile, version: str) -> Combination | None:
    """Return what CUDA graphs do not go together with in that release, or None."""
    return combination("beams_with_cuda_graphs", version) if profile.limits.max_beam_width > 1 else None


def _switch(loaded: LoadedProfile, name: str, obstacle: Combination | None) -> Decided[bool]:
    """Take a switch as asked; left to the plan it is on, unless the release cannot combine it."""
    value = getattr(loaded.profile.engine, name)
    if value != "auto":
        return as_asked(loaded, f"engine.{name}", value)
    if obstacle is None:
        return Decided(value=True, source="default", reason="not asked: upstream's default")
    features = obstacle.name.replace("_with_", " and ").replace("_", " ")
    return Decided(value=False, source="upstream", reason=f"{features} {obstacle.note}")


def speculation_plan(loaded: LoadedProfile, version: str) -> SpeculationPlan | None:
    """Decide the speculation of a release; None without."""
    wanted = loaded.profile.speculation
    if wanted is None:
        return None
    optional = ("draft_checkpoint", "capture_layers", "acceptance_threshold", "acceptance_window")
    given = {
        name: as_asked(loaded, f"speculation.{name}", getattr(wanted, name))
        for name in optional
        if getattr(wanted, name) is not None
    }
    if wanted.kind == "ngram" or wanted.max_ngram != "auto":
        given["max_ngram"] = _max_ngram(loaded, version)
    return SpeculationPlan(
        kind=as_asked(loaded, "speculation.kind", wanted.kind),
        draft_tokens=_draft_tokens(loaded, wanted, version),
        **given,
    )


def _draft_tokens(loaded: LoadedProfile, wanted: Speculation, version: str) -> Decided[int]:
    """Take the draft length as asked, unless the kind chooses it for itself."""
    batch = loaded.profile.limits.max_batch_size
    own = own_length(wanted.kind, version, batch)
    if own is None:
        return as_asked(loaded, "speculation.draft_tokens", wanted.draft_tokens)
    reason = f"kind {wanted.kind} drafts as many at limits.max_batch_size {batch:,}, whatever is asked"
    return Decided(value=own, source="upstream", reason=reason)


def _max_ngram(loaded: LoadedProfile, version: str) -> Decided[int]:
    wanted = loaded.profile.speculation
    if wanted is not None and wanted.max_ngram != "auto":
        return as_asked(loaded, "speculation.max_ngram", wanted.max_ngram)
    field = speculation_field("ngram", "max_matching_ngram_size", version)
    value = field.default if field is not None and field.default else 1
    return Decided(value=value, source="upstream", reason="main's default; earlier releases want it written")


def environment_plan(loaded: LoadedProfile, version: str) -> dict[str, Decided[str]]:
    """Pass on the variables of the profile, each with what it does in that release."""
    decided: dict[str, Decided[str]] = {}
    for name, value in loaded.profile.environment.items():
        known = variable(name, version)
        meaning = known.does if known else "not in trtkit's catalogue for this release; passed on as it is"
        decided[name] = Decided(value=value, source=source_of(loaded, f"environment.{name}"), reason=meaning)
    return decided


def runtime_plan(loaded: LoadedProfile, sizing: Sizing) -> RuntimePlan:
    """Decide how the runtime schedules and caches."""
    profile, cache = loaded.profile, loaded.profile.kv_cache
    host, priority = cache.host_cache_bytes, cache.secondary_offload_min_priority
    return RuntimePlan(
        runtime=as_asked(loaded, "runtime", profile.runtime),
        free_gpu_memory_fraction=as_asked(loaded, "kv_cache.free_gpu_memory_fraction", cache.free_gpu_memory_fraction),
        tokens_per_block=as_asked(loaded, "kv_cache.tokens_per_block", cache.tokens_per_block),
        enable_block_reuse=as_asked(loaded, "kv_cache.enable_block_reuse", cache.enable_block_reuse),
        scheduler_policy=as_asked(loaded, "scheduler.policy", profile.scheduler.policy),
        chunked_prefill=as_asked(loaded, "scheduler.chunked_prefill", profile.scheduler.chunked_prefill),
        enable_partial_reuse=as_asked(loaded, "kv_cache.enable_partial_reuse", cache.enable_partial_reuse),
        max_attention_window=_windows(loaded, sizing),
        host_cache_bytes=None if host is None else as_asked(loaded, "kv_cache.host_cache_bytes", host),
        secondary_offload_min_priority=None
        if priority is None
        else as_asked(loaded, "kv_cache.secondary_offload_min_priority", priority),
    )


_NO_WINDOW_TO_SET = "the runtime takes the window of compressed attention from the model itself"


def _windows(loaded: LoadedProfile, sizing: Sizing) -> Decided[tuple[int, ...]]:
    wanted, longest = sizing.kv_cache.max_attention_window, sizing.limits.max_seq_len
    if wanted != "auto":
        return as_asked(loaded, "kv_cache.max_attention_window", wanted).model_copy(
            update={"reason": f"asked by the profile: {_saved(sizing)}"}
        )
    own = attention_windows(sizing.model, longest)
    if not own:
        compressed = any(attention.compression is not None for attention in sizing.model.attentions)
        reason = _NO_WINDOW_TO_SET if compressed else "no layer's sliding window is shorter than limits.max_seq_len"
        return Decided(value=(), source="model", reason=reason)
    return Decided(
        value=own, source="model", reason="the model's own sliding windows, which its layers cannot see past"
    )


def _saved(sizing: Sizing) -> str:
    """Say what a sequence of ``max_seq_len`` takes with the asked windows and with the model's own."""
    own = replace(sizing, kv_cache=sizing.kv_cache.model_copy(update={"max_attention_window": "auto"}))
    narrow, wide = memory_plan(sizing).kv_bytes_longest, memory_plan(own).kv_bytes_longest
    longest = f"a sequence of {sizing.limits.max_seq_len:,} tokens"
    return f"{longest} takes {format_bytes(narrow)} instead of {format_bytes(wide)}"
