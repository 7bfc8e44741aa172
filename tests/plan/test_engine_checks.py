"""PF24, PF36 to PF39: engine settings, windows, host cache and environment variables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import hardware, llama_8b, maverick, profile, qwen3_moe
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import Attention, Layer, ModelSpec

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
MULTICAST = hardware(8, 192, 100).model_copy(update={"nvlink_multicast": True})


def found(
    rule: str, changes: dict[str, Any], model: ModelSpec | None = None, machine: Hardware | None = None
) -> list[Finding]:
    """Return what one rule says."""
    plan = settle(model or llama_8b(), profile(changes), machine or hardware(8, 192, 100))
    return [finding for finding in plan.findings if finding.rule == rule]


def sliding() -> ModelSpec:
    """Make 8B with a window in every other layer."""
    plain = llama_8b().layers[0]
    slide = Layer(
        mixer=Attention(kind="sliding", heads=32, kv_heads=8, head_dim=128, window=1024),
        feed_forward=plain.feed_forward,
    )
    return llama_8b().model_copy(update={"layers": (slide, plain) * 16})


SPLIT = {"parallelism.tensor": 8, "parallelism.expert": 8}
SPEAKS: list[tuple[str, Severity, dict[str, Any], ModelSpec, str, str]] = [
    ("PF24", ERROR, {"engine.expert_slots": 136, "trtllm_version": "1.0.0", **SPLIT}, qwen3_moe(8),
     "engine.expert_slots is 136; the key is in 1.1.0, 1.2.1, main", "engine.expert_slots: null"),
    ("PF24", ERROR, {"engine.allreduce_strategy": "nccl_symmetric", "trtllm_version": "1.0.0"}, llama_8b(),
     "engine.allreduce_strategy becomes NCCL_SYMMETRIC", "engine.allreduce_strategy: auto"),
    ("PF24", ERROR, {"engine.moe_backend": "wideep", "trtllm_version": "main"}, qwen3_moe(8),
     "engine.moe_backend becomes WIDEEP", "engine.moe_backend: auto"),
    ("PF24", WARNING, {"engine.moe_backend": "marlin", "trtllm_version": "1.3.0rc14"}, qwen3_moe(8),
     "engine.moe_backend becomes MARLIN", "engine.moe_backend: auto"),
    ("PF36", WARNING, {"environment": {"TRTLLM_ENABEL_PDL": "1"}}, llama_8b(),
     "TRTLLM_ENABEL_PDL is set to '1'", "environment.TRTLLM_ENABLE_PDL"),
    ("PF36", WARNING, {"environment": {"TRTLLM_ENABLE_PDL": "true"}}, llama_8b(),
     "found 'true'; it takes 0 or 1", 'environment.TRTLLM_ENABLE_PDL: "1"'),
    ("PF36", WARNING, {"environment": {"TRTLLM_DISABLE_UNIFIED_CONVERTER": "1"}, "trtllm_version": "main"},
     llama_8b(), "it is known before 1.3.0rc21", "leave TRTLLM_DISABLE_UNIFIED_CONVERTER out"),
    ("PF36", WARNING, {"environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "64"}}, llama_8b(),
     "a whole number from 1 to 32", 'environment.CUDA_DEVICE_MAX_CONNECTIONS: "32"'),
    ("PF37", WARNING, {"kv_cache.max_attention_window": (1024,)}, llama_8b(),
     "32 of 32 layers keep fewer than the 4,096 tokens", "kv_cache.max_attention_window: auto"),
    ("PF37", INFO, {"kv_cache.max_attention_window": (2048, 4096)}, sliding(),
     "16 of 32 layers (first: layer 0)", "kv_cache.max_attention_window: auto"),
    ("PF37", WARNING, {"kv_cache.max_attention_window": (4096,) * 33}, llama_8b(),
     "33 windows, 32 layers", "kv_cache.max_attention_window: auto"),
    ("PF38", ERROR, {"engine.expert_slots": 100, **SPLIT}, qwen3_moe(8),
     "expert_slots 100, 128 experts, 8 expert ranks", "engine.expert_slots: 128"),
    ("PF38", ERROR, {"engine.expert_slots": 130, **SPLIT}, qwen3_moe(8),
     "expert_slots 130, 128 experts, 8 expert ranks", "engine.expert_slots: 136"),
    ("PF38", WARNING, {"engine.expert_slots": 136}, qwen3_moe(8), "parallelism.expert 1", "leave engine.expert_slots"),
    ("PF38", WARNING, {"engine.moe_backend": "cutlass"}, llama_8b(), "engine.moe_backend is set", "leave engine"),
    ("PF38", WARNING, {"engine.min_latency": True}, llama_8b(), "of family llama", "engine.min_latency: false"),
    ("PF38", WARNING, {"engine.allreduce_strategy": "nccl_symmetric", "parallelism.tensor": 2}, llama_8b(),
     "no NVLink multicast on test", "engine.allreduce_strategy: auto"),
    ("PF38", INFO, {"engine.allreduce_strategy": "nccl", "parallelism.tensor": 1}, llama_8b(),
     "parallelism.tensor 1", "engine.allreduce_strategy: auto"),
    ("PF38", WARNING, {"engine.overlap_scheduler": True, "limits.max_beam_width": 4}, llama_8b(),
     "engine.overlap_scheduler true, limits.max_beam_width 4", "engine.overlap_scheduler: auto"),
    ("PF38", WARNING, {"engine.cuda_graphs": True, "limits.max_beam_width": 4}, llama_8b(),
     "engine.cuda_graphs true, limits.max_beam_width 4", "engine.cuda_graphs: auto"),
    ("PF38", INFO, {"engine.cuda_graph_max_batch_size": 8}, llama_8b(),
     "engine.cuda_graph_max_batch_size 8, limits.max_batch_size 32", "engine.cuda_graph_max_batch_size: auto"),
    ("PF39", WARNING, {"kv_cache.secondary_offload_min_priority": 30}, llama_8b(),
     "no host_cache_bytes", "kv_cache.host_cache_bytes: 32 GiB"),
    ("PF39", WARNING, {"kv_cache.host_cache_bytes": 1 << 30, "kv_cache.enable_block_reuse": False}, llama_8b(),
     "enable_block_reuse false", "kv_cache.enable_block_reuse: true"),
    ("PF39", WARNING, {"kv_cache.host_cache_bytes": 1 << 30, "kv_cache.secondary_offload_min_priority": 50},
     llama_8b(), "secondary_offload_min_priority 50, blocks have 35", "kv_cache.secondary_offload_min_priority: 35"),
    ("PF39", WARNING, {"kv_cache.host_cache_bytes": 1 << 30, "trtllm_version": "1.1.0"}, llama_8b(),
     "host_cache_bytes 1,073,741,824", "trtllm_version: 1.2.1"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "severity", "changes", "model", "compared", "suggestion"), SPEAKS)
def test_a_rule_names_the_numbers_and_what_works(
    rule: str, severity: Severity, changes: dict[str, Any], model: ModelSpec, compared: str, suggestion: str
) -> None:
    """Each finding has its severity, the numbers compared and what to change."""
    said = [finding for finding in found(rule, changes, model) if compared in finding.compared]
    assert [severity] == [finding.severity for finding in said], found(rule, changes, model)
    assert suggestion in said[0].suggestion


@pytest.mark.parametrize(
    ("rule", "changes", "model"),
    [
        ("PF24", {"engine.expert_slots": 136, **SPLIT}, qwen3_moe(8)),
        ("PF36", {"environment": {"TRTLLM_ENABLE_PDL": "0", "NCCL_IB_HCA": "mlx5_0", "MY_OWN": "x"}}, llama_8b()),
        ("PF36", {"environment": {"NCCL_SOMETHING_OF_TOMORROW": "1"}}, llama_8b()),
        ("PF37", {"kv_cache.max_attention_window": (1024, 4096)}, sliding()),
        ("PF37", {"kv_cache.max_attention_window": (100_000,)}, llama_8b()),
        ("PF37", {"kv_cache.max_attention_window": (8192, 8192, 8192, 16384), "limits.max_seq_len": 16384}, maverick()),
        ("PF37", {"kv_cache.max_attention_window": (16384,), "limits.max_seq_len": 16384}, maverick()),
        ("PF38", {"engine.expert_slots": 136, "engine.moe_backend": "wideep", **SPLIT}, qwen3_moe(8)),
        ("PF38", {"engine.min_latency": True}, maverick()),
        ("PF38", {"limits.max_beam_width": 4}, llama_8b()),
        ("PF38", {"engine.overlap_scheduler": True, "limits.max_beam_width": 4, "trtllm_version": "main"}, llama_8b()),
        ("PF39", {"kv_cache.host_cache_bytes": 1 << 30, "kv_cache.secondary_offload_min_priority": 35}, llama_8b()),
    ],
)
def test_a_rule_is_silent_about_what_is_sound(rule: str, changes: dict[str, Any], model: ModelSpec) -> None:
    """No false alarm for settings that suit the release, the model and each other."""
    assert [] == found(rule, changes, model)


@pytest.mark.parametrize(("each", "count"), [(250 * 10**9, 0), (250 * 10**9 + 1, 1)])
def test_host_caches_of_a_node_are_compared_with_its_memory(each: int, count: int) -> None:
    """Eight ranks of 250 GB fill the 2 TB of a node; a byte more is too much, and the suggestion is half of it."""
    said = found("PF39", {"kv_cache.host_cache_bytes": each, "parallelism.tensor": 8}, machine=load_hardware("h100x8"))
    assert count == len(said)
    assert all(
        (WARNING, "kv_cache.host_cache_bytes: 116 GiB") == (one.severity, one.suggestion)
        and "8 ranks x 232.83 GiB = 1.82 TiB, 1.82 TiB in a node of h100x8" == one.compared
        for one in said
    )


def test_multicast_is_asked_of_the_machine() -> None:
    """A machine known to have NVLink multicast may use it."""
    changes = {"engine.allreduce_strategy": "nccl_symmetric", "parallelism.tensor": 8}
    assert [] == found("PF38", changes, machine=MULTICAST)


@settings(max_examples=60, deadline=None)
@given(slots=st.integers(1, 512))
def test_the_suggested_slots_are_legal(slots: int) -> None:
    """Following the suggestion ends the finding, for any number of slots."""
    model = qwen3_moe(2)
    for finding in found("PF38", {"engine.expert_slots": slots, **SPLIT}, model):
        better = int(finding.suggestion.removeprefix("engine.expert_slots: "))
        assert [] == found("PF38", {"engine.expert_slots": better, **SPLIT}, model)


def test_beams_switch_off_what_the_release_cannot_combine() -> None:
    """Left to the plan, overlap and graphs are off in 1.2.1 and on in main, each with its reason."""
    early = settle(llama_8b(), profile({"limits.max_beam_width": 4}), hardware(1)).engine
    late = settle(llama_8b(), profile({"limits.max_beam_width": 4, "trtllm_version": "main"}), hardware(1)).engine
    assert (False, "upstream", "beams and overlap do not go together") == (
        early.overlap_scheduler.value, early.overlap_scheduler.source, early.overlap_scheduler.reason,
    )  # fmt: skip
    assert not early.cuda_graphs.value
    assert (True, True) == (late.overlap_scheduler.value, late.cuda_graphs.value)


def test_asked_windows_shrink_the_cache_and_the_plan_says_by_how_much() -> None:
    """A quarter of the window is a quarter of the cache of a longest sequence."""
    wide = settle(llama_8b(), profile(), hardware(1))
    narrow = settle(llama_8b(), profile({"kv_cache.max_attention_window": (1024,)}), hardware(1))
    assert wide.memory.kv_bytes_longest == 4 * narrow.memory.kv_bytes_longest
    reason = narrow.runtime.max_attention_window.reason
    assert "a sequence of 4,096 tokens takes 128.00 MiB instead of 512.00 MiB" in reason


def test_windows_are_repeated_over_the_layers() -> None:
    """A pattern of two narrows every other layer."""
    wide = settle(llama_8b(), profile(), hardware(1)).memory.kv_bytes_longest
    mixed = settle(llama_8b(), profile({"kv_cache.max_attention_window": (1024, 4096)}), hardware(1)).memory
    assert wide // 2 + wide // 8 == mixed.kv_bytes_longest


def test_expert_slots_are_counted_in_the_weights() -> None:
    """Eight more places on eight ranks are one expert more on each, in every layer."""
    plain, more = (
        settle(qwen3_moe(8), profile(SPLIT | extra), hardware(8, 192)).memory.parameters_held
        for extra in ({}, {"engine.expert_slots": 136})
    )
    assert 8 * 3 * 4096 * 1536 == more - plain
