"""From a plan to the YAML of the LLM API, with the keys its release has and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from trtllm_kit.plan.llm_keys import LIMIT_KEYS, LLM_API_KEYS, settings_of
from trtllm_kit.plan.llm_options import GRAPH_SIZES, put
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.speculation_keys import speculation_document
from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.upstream.llm_api import kv_cache_dtype, limits_section, llm_api_key
from trtllm_kit.upstream.speculation import SECTION as SPECULATION

CHECKPOINT = "checkpoint"
"""The link beside the YAML that stands for the model."""
Document = dict[str, Any]


def llm_api_document(plan: Plan) -> Document:
    """Return the LLM-API arguments of a plan, in the order they are written; settings the release lacks are left out.

    A setting that matters and has no key in the release is an error of the plan (PF24), not of this function. The
    profile's ``llm_api.options`` come last, and none of them is a key of a setting.
    """
    document: Document = {}
    for key, value in _settings(plan):
        if llm_api_key(plan.release.value, key) is not None:
            put(document, key, value)
    for key, value in options_of(plan).items():
        put(document, key, value)
    return document


def options_of(plan: Plan) -> dict[str, Any]:
    """Return the keys that the profile sets by ``llm_api.options``, dotted: written whatever is known of them."""
    return {key: decided.value for key, decided in (plan.llm_api or {}).items()}


def llm_api_yaml(plan: Plan) -> str:
    """Return the document as YAML text, the same for the same plan."""
    head = (
        f"# LLM-API arguments for TensorRT-LLM {plan.release.value}, written by trtkit from profile {plan.profile}.\n"
    )
    return head + yaml.safe_dump(llm_api_document(plan), sort_keys=False, default_flow_style=False, width=120)


def _settings(plan: Plan) -> Iterator[tuple[str, object]]:
    """Yield every key with its value, without asking whether the release has it."""
    yield "model", CHECKPOINT
    yield "backend", "pytorch"
    yield from _parallel(plan)
    yield from _limits(plan)
    yield LLM_API_KEYS["runtime.chunked_prefill"], plan.runtime.chunked_prefill.value
    yield from _kv_cache(plan)
    yield LLM_API_KEYS["runtime.scheduler_policy"], plan.runtime.scheduler_policy.value.upper()
    yield from _cuda_graphs(plan)
    yield from ((setting.key, value) for setting, value in settings_of(plan))
    if speculation := speculation_document(plan):
        yield SPECULATION, speculation
    yield "enable_iter_perf_stats", True
    yield "return_perf_metrics", True


def _parallel(plan: Plan) -> Iterator[tuple[str, object]]:
    split = plan.parallelism
    yield LLM_API_KEYS["parallelism.tensor"], split.tensor.value
    yield LLM_API_KEYS["parallelism.pipeline"], split.pipeline.value
    if _has_experts(plan.model):
        yield LLM_API_KEYS["parallelism.expert"], split.expert.value


def _limits(plan: Plan) -> Iterator[tuple[str, object]]:
    section = limits_section(plan.release.value)
    prefix = f"{section}." if section else ""
    for name in LIMIT_KEYS:
        yield f"{prefix}{name}", getattr(plan.limits, name).value
    if plan.limits.max_beam_width.value > 1:
        yield "enable_trtllm_sampler", True  # 1.0 searches beams with that sampler alone; later releases choose it
    if section:  # what that section leaves out goes back to its own default, 1024 tokens
        yield f"{prefix}max_input_len", plan.limits.max_seq_len.value


def _kv_cache(plan: Plan) -> Iterator[tuple[str, object]]:
    for name in ("free_gpu_memory_fraction", "tokens_per_block", "enable_block_reuse"):
        yield LLM_API_KEYS[f"runtime.{name}"], getattr(plan.runtime, name).value
    kept = kv_cache_dtype(plan.release.value, plan.quantization.kv_cache.value)
    yield LLM_API_KEYS["quantization.kv_cache"], kept


def _cuda_graphs(plan: Plan) -> Iterator[tuple[str, object]]:
    if not plan.engine.cuda_graphs.value:
        yield "cuda_graph_config", None
        return
    yield "cuda_graph_config.enable_padding", plan.engine.cuda_graph_padding.value
    if GRAPH_SIZES not in options_of(plan):  # the largest of that list
        yield "cuda_graph_config.max_batch_size", plan.engine.cuda_graph_max_batch_size.value


def _has_experts(model: ModelSpec) -> bool:
    return any(isinstance(layer.feed_forward, Experts) for layer in model.layers)
