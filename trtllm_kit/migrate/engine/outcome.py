"""The files of a migration beside its report: LLM-API arguments, and the repository where the model is known (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from trtllm_kit.build.llm_api import CHECKPOINT, llm_api_document
from trtllm_kit.plan.llm_options import data_of, is_an_option, nested
from trtllm_kit.plan.plan import Plan
from trtllm_kit.repository.compose import compose, model_sources
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.upstream.llm_api import kv_cache_dtype, limits_section, llm_api_key

LLM_ARGS = "llm_args.yaml"
REPOSITORY = "repository"


def planned_files(plan: Plan) -> dict[str, str]:
    """Return the LLM-API YAML and every file of the repository of a plan, as ``build`` and ``deploy`` write them.

    Raises ``RepositoryError`` when the release has no llmapi model.
    """
    head = f"LLM-API arguments for TensorRT-LLM {plan.release.value}, of the migrated profile."
    files = {LLM_ARGS: _dumped(llm_api_document(plan), head)}
    return files | {f"{REPOSITORY}/{name}": text for name, text in compose(plan, model_sources()).items()}


def unplanned_files(profile: DeployProfile, release: str) -> dict[str, str]:
    """Return the LLM-API YAML of a profile whose model nobody named: what the profile says, and nothing decided."""
    said = {key: value for key, value in _said(profile, release).items() if llm_api_key(release, key) is not None}
    options = {key: data_of(value) for key, value in profile.llm_api.options.items() if is_an_option(release, key)}
    arguments = nested({"model": CHECKPOINT, "backend": "pytorch", **said, **options})
    head = f"LLM-API arguments for TensorRT-LLM {release}, of the migrated profile; no model was named to plan for."
    return {LLM_ARGS: _dumped(arguments, head)}


def _said(profile: DeployProfile, release: str) -> dict[str, Any]:
    """Return the LLM-API keys of what a profile asks for, dotted; what only a plan can decide is left out."""
    limits, cache, split = profile.limits, profile.kv_cache, profile.parallelism
    section = limits_section(release)
    prefix = f"{section}." if section else ""
    found: dict[str, Any] = {
        "tensor_parallel_size": 1 if split.tensor == "auto" else split.tensor,
        "pipeline_parallel_size": split.pipeline,
        f"{prefix}max_batch_size": limits.max_batch_size,
        f"{prefix}max_num_tokens": limits.max_num_tokens,
        f"{prefix}max_seq_len": limits.max_seq_len,
        f"{prefix}max_beam_width": limits.max_beam_width,
        "enable_chunked_prefill": profile.scheduler.chunked_prefill,
        "kv_cache_config.free_gpu_memory_fraction": cache.free_gpu_memory_fraction,
        "kv_cache_config.tokens_per_block": cache.tokens_per_block,
        "kv_cache_config.enable_block_reuse": cache.enable_block_reuse,
        "kv_cache_config.dtype": kv_cache_dtype(release, profile.quantization.kv_cache),
        "scheduler_config.capacity_scheduler_policy": profile.scheduler.policy.upper(),
    }
    if split.expert > 1:
        found["moe_expert_parallel_size"] = split.expert
    if cache.max_attention_window != "auto":
        found["kv_cache_config.max_attention_window"] = list(cache.max_attention_window)
    if cache.host_cache_bytes is not None:
        found["kv_cache_config.host_cache_size"] = cache.host_cache_bytes
    return found


def _dumped(document: Mapping[str, Any], head: str) -> str:
    return f"# {head}\n" + yaml.safe_dump(dict(document), sort_keys=False, default_flow_style=False, width=120)
