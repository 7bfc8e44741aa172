"""The LLM-API document: only keys its release has, the right values, the same text for the same plan."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import hardware, llama_8b, llama_70b, maverick, profile, qwen3_moe
from trtllm_kit.build.llm_api import llm_api_document, llm_api_yaml
from trtllm_kit.findings import errors
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.model import Attention, Layer, ModelSpec
from trtllm_kit.upstream.llm_api import llm_api_key, unknown_llm_api_keys


def sliding(window: int) -> ModelSpec:
    """Make 8B with a window in every other layer."""
    attention = Attention(kind="sliding", heads=32, kv_heads=8, head_dim=128, window=window)
    plain = llama_8b().layers[0]
    slide = Layer(attention=attention, feed_forward=plain.feed_forward)
    return llama_8b().model_copy(update={"layers": (slide, plain) * 2})


def plan_of(changes: dict[str, Any] | None = None, model: ModelSpec | None = None) -> Plan:
    """Plan on eight large GPUs."""
    return settle(model or llama_8b(), profile(changes), hardware(8, 192, 100))


RELEASES = ("1.0.0", "1.1.0", "1.2.1", "main")
LEGAL_PLANS = st.fixed_dictionaries({
    "trtllm_version": st.sampled_from(RELEASES),
    "parallelism.tensor": st.sampled_from(["auto", 1, 2, 4, 8]),
    "parallelism.pipeline": st.sampled_from([1, 2]),
    "quantization.weights": st.sampled_from(["bf16", "fp8"]),
    "quantization.kv_cache": st.sampled_from(["bf16", "fp8"]),
    "limits.max_batch_size": st.integers(1, 512),
    "limits.max_num_tokens": st.integers(2048, 32768),
    "limits.max_seq_len": st.integers(2048, 8192),
    "limits.max_beam_width": st.integers(1, 4),
    "kv_cache.free_gpu_memory_fraction": st.floats(0.5, 0.95),
    "kv_cache.tokens_per_block": st.sampled_from([16, 32, 64, 128]),
    "kv_cache.enable_block_reuse": st.booleans(),
    "scheduler.policy": st.sampled_from(["guaranteed_no_evict", "max_utilization"]),
    "scheduler.chunked_prefill": st.booleans(),
})  # fmt: skip
MODELS = st.sampled_from([llama_8b(), llama_70b(), qwen3_moe(8), maverick(), sliding(1024)])


@settings(max_examples=150, deadline=None)
@given(changes=LEGAL_PLANS, model=MODELS)
def test_every_key_written_is_known_to_the_release(changes: dict[str, Any], model: ModelSpec) -> None:
    """No plan of any release makes a document that the release refuses, and every choice is one it allows."""
    made = plan_of(changes, model)
    document, version = llm_api_document(made), made.release.value
    assert () == unknown_llm_api_keys(version, document)
    for key, value in flat(document):
        entry = llm_api_key(version, key)
        assert entry is not None
        assert not entry.allowed or value in entry.allowed, key


@settings(max_examples=60, deadline=None)
@given(changes=LEGAL_PLANS, model=MODELS)
def test_what_a_plan_without_errors_decides_is_in_the_document(changes: dict[str, Any], model: ModelSpec) -> None:
    """A setting is written, or the release does the same without it."""
    made = plan_of(changes, model)
    if errors(made.findings):
        return
    written = dict(flat(llm_api_document(made)))
    section = "build_config." if made.release.value == "1.0.0" else ""
    assert made.parallelism.tensor.value == written["tensor_parallel_size"]
    for name in ("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width"):
        assert getattr(made.limits, name).value == written[section + name]
    block = made.runtime.tokens_per_block.value
    assert block == written.get("kv_cache_config.tokens_per_block", 32)
    assert made.runtime.chunked_prefill.value == written["enable_chunked_prefill"]
    assert made.runtime.free_gpu_memory_fraction.value == written["kv_cache_config.free_gpu_memory_fraction"]


def flat(document: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return dotted keys with their values."""
    found: list[tuple[str, Any]] = []
    for key, value in document.items():
        found += flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


def test_a_release_candidate_gets_only_keys_that_its_neighbours_share() -> None:
    """1.3.0rc14 was not read: what is written to it is known before and after."""
    document = llm_api_document(plan_of({"trtllm_version": "1.3.0rc14"}))
    assert () == unknown_llm_api_keys("1.2.1", document)
    assert () == unknown_llm_api_keys("main", document)


def test_the_yaml_reads_back_as_the_document() -> None:
    """Comments and order are for people."""
    made = plan_of()
    text = llm_api_yaml(made)
    assert llm_api_document(made) == yaml.safe_load(text)
    assert text.startswith("# LLM-API arguments for TensorRT-LLM 1.2.1, written by trtkit from profile test.\nmodel: ")
    assert text == llm_api_yaml(plan_of())


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"scheduler.policy": "max_utilization"}, "scheduler_config.capacity_scheduler_policy", "MAX_UTILIZATION"),
        ({"quantization.kv_cache": "fp8"}, "kv_cache_config.dtype", "fp8"),
        ({}, "kv_cache_config.dtype", "auto"),
        ({}, "enable_iter_perf_stats", True),
        ({}, "return_perf_metrics", True),
        ({}, "cuda_graph_config.max_batch_size", 32),
        ({"trtllm_version": "1.0.0"}, "build_config.max_input_len", 4096),
    ],
)
def test_values_are_in_upstreams_spelling(changes: dict[str, Any], key: str, value: object) -> None:
    """Policies are upper case, formats lower, and statistics are switched on for the metrics."""
    assert value == dict(flat(llm_api_document(plan_of(changes))))[key]


def test_expert_ranks_are_written_for_models_with_experts_only() -> None:
    """A dense model has no such key."""
    routed = llm_api_document(plan_of({"parallelism.expert": 4, "parallelism.tensor": 4}, qwen3_moe(8)))
    assert 4 == routed["moe_expert_parallel_size"]
    assert "moe_expert_parallel_size" not in llm_api_document(plan_of())


def test_sliding_windows_are_written_by_layer() -> None:
    """The runtime keeps what the memory model counted."""
    document = llm_api_document(plan_of(model=sliding(1024)))
    assert [1024, 4096, 1024, 4096] == document["kv_cache_config"]["max_attention_window"]
    assert "max_attention_window" not in llm_api_document(plan_of(model=sliding(4096)))["kv_cache_config"]


def test_1_0_leaves_out_what_it_does_not_know() -> None:
    """Statistics of each request and the block size came with 1.1."""
    document = llm_api_document(plan_of({"trtllm_version": "1.0.0"}))
    assert "return_perf_metrics" not in document
    assert "tokens_per_block" not in document["kv_cache_config"]
    assert "max_batch_size" not in document
