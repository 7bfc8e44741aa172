"""The key table of the LLM API, and its agreement with the recorded tables of each release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.upstream.llm_api import (
    limits_section,
    llm_api_key,
    llm_api_keys,
    releases_with_key,
    unknown_llm_api_keys,
    value_without_key,
)

RECORDED = {"1.0.0": "1.0.0", "1.1.0": "1.1.0", "1.2.1": "1.2.1", "main": "main"}
NOT_YAML = {"_mpi_session", "mpi_session", "batched_logits_processor", "checkpoint_loader"}
"""Keys that take live Python objects only."""
SECTIONS = {"kv_cache_config": "KvCacheConfig", "scheduler_config": "SchedulerConfig", "moe_config": "MoeConfig"}


NESTED = SECTIONS | {
    "attention_dp_config": "AttentionDpConfig",
    "cache_transceiver_config": "CacheTransceiverConfig",
    "cuda_graph_config": "CudaGraphConfig",
    "moe_config.load_balancer": "MoeLoadBalancerConfig",
    "torch_compile_config": "TorchCompileConfig",
}
"""Every section whose inside the table lists for more than one release."""


def recorded(shared: Path, version: str) -> dict[str, Any]:
    """Read the recorded table of one release."""
    document: dict[str, Any] = yaml.safe_load((shared / "contract" / f"llmapi-{version}.yaml").read_text("utf-8"))
    return document


def recorded_keys(document: dict[str, Any]) -> Iterator[str]:
    """Yield the dotted keys of the top level and of three sections."""
    if "top_level" in document:
        top, classes = document["top_level"]["fields"], document["definitions"]
    else:
        classes = document["classes"]
        top = classes["BaseLlmArgs"]["fields"] | classes["TorchLlmArgs"]["fields"]
    for key in top.keys() - NOT_YAML:
        yield key
        if key in SECTIONS:
            yield from (f"{key}.{name}" for name in classes[SECTIONS[key]]["fields"])


@pytest.mark.parametrize("version", RECORDED)
def test_the_table_has_exactly_the_recorded_keys(shared: Path, version: str) -> None:
    """No key of a release read exactly is missing, and none was invented."""
    sections = tuple(f"{name}." for name in SECTIONS)
    rows = {row.key for row in llm_api_keys() if row.holds(version)}
    ours = {key for key in rows if "." not in key or (key.startswith(sections) and key.count(".") == 1)}
    assert set(recorded_keys(recorded(shared, version))) == ours


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.parametrize("section", NESTED)
def test_a_section_is_listed_whole_with_its_defaults_and_values(shared: Path, version: str, section: str) -> None:
    """Inside of every listed section stand exactly the recorded keys, each with the recorded default and values."""
    document = recorded(shared, version)
    classes = document.get("definitions") or document["classes"]
    name = NESTED[section]
    fields = (classes.get(name) or classes.get(f"Decode{name}") or {"fields": {}})["fields"]
    held = [row for row in llm_api_keys() if row.holds(version) and row.key.startswith(f"{section}.")]
    ours = {key: row for row in held if "." not in (key := row.key.removeprefix(f"{section}."))}
    assert fields.keys() == ours.keys()
    plain = {key: field for key, field in fields.items() if not isinstance(field.get("default"), dict | list)}
    assert {key: field.get("default") for key, field in plain.items()} == {key: ours[key].default for key in plain}
    spoken = {key: tuple(field["allowed"]) for key, field in fields.items() if len(field.get("allowed", ())) > 1}
    assert spoken == {key: ours[key].allowed for key in spoken}


@pytest.mark.parametrize(
    ("version", "key", "default"),
    [
        ("1.1.0", "kv_cache_config.tokens_per_block", 32),
        ("1.2.1", "kv_cache_config.free_gpu_memory_fraction", 0.9),
        ("1.1.0", "kv_cache_config.free_gpu_memory_fraction", None),
        ("main", "max_batch_size", 2048),
        ("1.2.1", "scheduler_config.capacity_scheduler_policy", "GUARANTEED_NO_EVICT"),
    ],
)
def test_defaults_are_those_of_the_release(version: str, key: str, default: object) -> None:
    """A default that changed between releases is told per release."""
    entry = llm_api_key(version, key)
    assert entry is not None
    assert default == entry.default


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("1.0.0", "kv_cache_config.tokens_per_block"),
        ("1.0.0", "return_perf_metrics"),
        ("1.2.1", "build_config"),
        ("main", "kv_cache_config.onboard_blocks"),
        ("main", "sampler_type"),
        ("1.2.1", "kv_cache_config.use_kv_cache_manager_v2"),
        ("1.2.1", "moe_backend"),
    ],
)
def test_keys_a_release_does_not_take(version: str, key: str) -> None:
    """A key from another release, or from a stale document, is not found."""
    assert llm_api_key(version, key) is None


def test_a_release_between_those_read_is_not_certain() -> None:
    """What holds for 1.3.0rc14 was read beside it, not in it."""
    between, exact = llm_api_key("1.3.0rc14", "max_seq_len"), llm_api_key("1.2.1", "max_seq_len")
    assert between is not None
    assert exact is not None
    assert ("near", "read") == (between.certainty, exact.certainty)


def test_unknown_keys_are_found_at_every_depth_in_document_order() -> None:
    """Nested unknown keys are dotted; of another kind they are as unknown; what a release leaves free is left alone."""
    document = {
        "use_cuda_graph": True,
        "kv_cache_config": {"dtype": "fp8", "kv_cache_dtype": "fp8"},
        "env_overrides": {"ANYTHING": "1"},
        "sparse_attention_config": {"algorithm": "DSA", "index_topk": 2048, "window_size": 32},
        "lora_config": {"max_lora_rank": 8, "rank": 8},
        "speculative_config": {"decoding_type": "Eagle", "max_draft_len": 3, "acceptance_rate_threshold": 0.5},
        "build_config": {"max_batch_size": 1},
    }
    found = unknown_llm_api_keys("1.2.1", document)
    spoken = "speculative_config.acceptance_rate_threshold"
    inside = ("sparse_attention_config.window_size", "lora_config.rank", spoken)
    assert ("use_cuda_graph", "kv_cache_config.kv_cache_dtype", *inside, "build_config") == found


def test_the_limits_stand_in_build_config_in_1_0_only() -> None:
    """On 1.0 a build_config overwrites top-level limits, so they are written there."""
    assert "build_config" == limits_section("1.0.0")
    assert ["", "", "", ""] == [limits_section(name) for name in ("1.1.0", "1.2.1", "1.3.0rc14", "main")]


@pytest.mark.parametrize(
    ("version", "refuses", "certainty"),
    [("1.1.0", False, "read"), ("1.2.1", False, "read"), ("1.3.0rc20", False, "near"), ("main", True, "read")],
)
def test_block_sizes_are_checked_by_main_only(version: str, refuses: bool, certainty: str) -> None:
    """1.1.0 and 1.2.1 take any number of tokens a block; main's validator wants a power of two."""
    entry = llm_api_key(version, "kv_cache_config.tokens_per_block")
    assert entry is not None
    assert (refuses, certainty) == (entry.power_of_two, entry.certainty)


def test_what_a_release_does_without_a_key_is_known_for_its_range_only() -> None:
    """1.0 has 32 tokens a block and no key; releases with the key, and other keys, have no such value."""
    values = [value_without_key(version, "kv_cache_config.tokens_per_block") for version in ("1.0.0", "1.0.2", "1.1.0")]
    assert [32, 32, None] == values
    assert value_without_key("1.0.0", "return_perf_metrics") is None


def test_releases_that_take_a_key_are_listed_oldest_first() -> None:
    """A finding can name the release that has what this one lacks."""
    assert ("1.1.0", "1.2.1", "main") == releases_with_key("kv_cache_config.tokens_per_block")
    assert () == releases_with_key("no_such_key")
