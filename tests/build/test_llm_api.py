"""The LLM-API document: only keys its release has, the right values, the same text for the same plan."""

from __future__ import annotations

from typing import Any, get_args

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
from trtllm_kit.spec.profile_sections import GATED, AllReduce, MoeBackend
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.llm_api import llm_api_key, unknown_llm_api_keys
from trtllm_kit.upstream.speculation import KINDS, api_kinds, releases_read


def sliding(window: int) -> ModelSpec:
    """Make 8B with a window in every other layer."""
    attention = Attention(kind="sliding", heads=32, kv_heads=8, head_dim=128, window=window)
    plain = llama_8b().layers[0]
    slide = Layer(mixer=attention, feed_forward=plain.feed_forward)
    return llama_8b().model_copy(update={"layers": (slide, plain) * 2})


def plan_of(changes: dict[str, Any] | None = None, model: ModelSpec | None = None) -> Plan:
    """Plan on eight large GPUs."""
    return settle(model or llama_8b(), profile(changes), hardware(8, 192, 100))


RELEASES = ("1.0.0", "1.1.0", "1.2.1", "main")
LEGAL_PLANS = st.fixed_dictionaries({
    "trtllm_version": st.sampled_from(RELEASES),
    "parallelism.tensor": st.sampled_from(["auto", 1, 2, 4, 8]),
    "parallelism.pipeline": st.sampled_from([1, 2]),
    "quantization.weights": st.sampled_from(["bf16", "fp8", "nvfp4"]),
    "quantization.kv_cache": st.sampled_from(["bf16", "fp8", "nvfp4"]),
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


def _speculation(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    gate: st.SearchStrategy[dict[str, Any]] = st.one_of(
        st.just({}),
        st.fixed_dictionaries({"acceptance_threshold": st.floats(0, 1), "acceptance_window": st.integers(1, 500)}),
    )
    gate = st.just({}) if kind not in GATED else gate
    own: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "eagle3": {"draft_checkpoint": st.just("draft"), "capture_layers": st.none() | st.just((1, 2, 3))},
        "mtp": {},
        "ngram": {"max_ngram": st.just("auto") | st.integers(1, 8)},
        "draft_target": {"draft_checkpoint": st.just("draft")},
        "pard": {"draft_checkpoint": st.just("draft")},
        "sa": {"max_ngram": st.just("auto") | st.integers(1, 8)},
        "auto": {},
    }
    keys = {"kind": st.just(kind), "draft_tokens": st.integers(1, 8), **own[kind]}
    return st.builds(lambda one, other: one | other, st.fixed_dictionaries(keys), gate)


ENGINE = st.fixed_dictionaries({}, optional={
    "engine.overlap_scheduler": st.booleans(),
    "engine.allreduce_strategy": st.sampled_from(get_args(AllReduce)),
    "engine.cuda_graphs": st.booleans(),
    "engine.cuda_graph_max_batch_size": st.integers(1, 512),
    "engine.cuda_graph_padding": st.booleans(),
    "engine.autotuner": st.booleans(),
    "engine.moe_backend": st.sampled_from(get_args(MoeBackend)),
    "engine.min_latency": st.booleans(),
    "engine.stream_interval": st.integers(1, 50),
    "engine.expert_slots": st.integers(1, 256),
    "kv_cache.max_attention_window": st.lists(st.integers(1, 8192), min_size=1, max_size=4).map(tuple),
    "kv_cache.host_cache_bytes": st.integers(1, 1 << 40),
    "kv_cache.secondary_offload_min_priority": st.integers(0, 100),
    "kv_cache.enable_partial_reuse": st.booleans(),
    "limits.max_beam_width": st.integers(1, 4),
    "speculation": st.sampled_from(KINDS).flatmap(_speculation),
})  # fmt: skip
ALL_RELEASES = tuple(name for name in known_releases() if "llm-api" in release(name).toolchains)


@settings(max_examples=250, deadline=None)
@given(changes=ENGINE, model=MODELS, version=st.sampled_from(ALL_RELEASES))
def test_no_engine_setting_or_speculation_is_written_that_the_release_refuses(
    changes: dict[str, Any], model: ModelSpec, version: str
) -> None:
    """Whatever is asked, every key and every field written is one that the release of the plan has."""
    made = plan_of(changes | {"trtllm_version": version}, model)
    document = llm_api_document(made)
    assert () == unknown_llm_api_keys(made.release.value, document)
    known = "speculation" in changes and changes["speculation"]["kind"] in api_kinds(version)
    assert known == ("speculative_config" in document)
    if errors(made.findings):
        return
    for key, value in flat({name: one for name, one in document.items() if name != "speculative_config"}):
        entry = llm_api_key(version, key)
        assert entry is not None
        sure = entry.certainty == "read"
        assert not entry.allowed or value in entry.allowed or not sure, key


@settings(max_examples=100, deadline=None)
@given(asked=st.sampled_from(KINDS).flatmap(_speculation), version=st.sampled_from(ALL_RELEASES))
def test_what_speculation_asks_is_written_or_a_finding(asked: dict[str, Any], version: str) -> None:
    """Each key has its field, with the value in the release's measure, or a finding says that it is left out."""
    made = plan_of({"speculation": asked, "trtllm_version": version}, with_prediction_layers())
    left_out = [finding for finding in made.findings if "have a field" in finding.message]
    left_out += [finding for finding in made.findings if "so none is written" in finding.message]
    assert not (left_out and version in releases_read())
    if errors(made.findings) or left_out:
        return
    written = llm_api_document(made)["speculative_config"]
    assert (None if asked["kind"] == "auto" else asked["draft_tokens"]) == written.get("max_draft_len")
    assert asked.get("draft_checkpoint") == written.get("speculative_model", written.get("speculative_model_dir"))
    assert list(asked.get("capture_layers") or ()) == written.get("eagle3_layers_to_capture", [])
    if "acceptance_threshold" in asked:
        share = written.get("acceptance_rate_threshold", asked["acceptance_threshold"])
        length = written.get("acceptance_length_threshold", share * asked["draft_tokens"])
        assert asked["acceptance_threshold"] == share
        assert pytest.approx(share * asked["draft_tokens"], abs=1e-6) == length
        window = written.get("acceptance_window", written.get("acceptance_rate_window_size"))
        assert asked["acceptance_window"] == window


def with_prediction_layers() -> ModelSpec:
    """Make 8B with one layer that predicts further tokens."""
    return llama_8b().model_copy(update={"prediction_layers": 1})


@pytest.mark.parametrize(
    ("version", "asked", "section"),
    [
        ("1.0.0", {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "d"},
         {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": "d"}),
        ("1.2.1", {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "d", "capture_layers": (1, 15, 28),
                   "acceptance_threshold": 0.65, "acceptance_window": 32},
         {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model": "d",
          "eagle3_layers_to_capture": [1, 15, 28], "acceptance_length_threshold": 1.95, "acceptance_window": 32}),
        ("main", {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "d", "acceptance_threshold": 0.65,
                  "acceptance_window": 32},
         {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "d", "acceptance_rate_threshold": 0.65,
          "acceptance_rate_window_size": 32}),
        ("1.2.1", {"kind": "mtp", "draft_tokens": 2},
         {"decoding_type": "MTP", "max_draft_len": 2, "num_nextn_predict_layers": 2}),
        ("main", {"kind": "mtp", "draft_tokens": 2}, {"decoding_type": "MTP", "max_draft_len": 2}),
        ("main", {"kind": "pard", "draft_tokens": 5, "draft_checkpoint": "d"},
         {"decoding_type": "PARD", "max_draft_len": 5, "speculative_model": "d"}),
        ("1.3.0rc14", {"kind": "pard", "draft_tokens": 5, "draft_checkpoint": "d"},
         {"decoding_type": "PARD", "max_draft_len": 5, "speculative_model": "d"}),
        ("main", {"kind": "sa", "draft_tokens": 4, "acceptance_threshold": 0.5, "acceptance_window": 9},
         {"decoding_type": "SA", "max_draft_len": 4, "acceptance_rate_threshold": 0.5,
          "acceptance_rate_window_size": 9}),
        ("main", {"kind": "sa", "draft_tokens": 4, "max_ngram": 3},
         {"decoding_type": "SA", "max_draft_len": 4, "max_matching_ngram_size": 3}),
        ("1.0.0", {"kind": "auto", "draft_tokens": 4}, {"decoding_type": "AUTO"}),
        ("1.1.0", {"kind": "ngram", "draft_tokens": 4},
         {"decoding_type": "NGram", "max_draft_len": 4, "max_matching_ngram_size": 2}),
        ("1.2.1", {"kind": "draft_target", "draft_tokens": 4, "draft_checkpoint": "d"},
         {"decoding_type": "DraftTarget", "max_draft_len": 4, "speculative_model": "d"}),
        ("main", {"kind": "draft_target", "draft_tokens": 4, "draft_checkpoint": "d"},
         {"decoding_type": "Draft_Target", "max_draft_len": 4, "speculative_model": "d"}),
    ],
)  # fmt: skip
def test_speculation_is_spelt_as_each_release_wants_it(
    version: str, asked: dict[str, Any], section: dict[str, Any]
) -> None:
    """Word, length, draft model and draft gate have other names from one release to the next."""
    made = plan_of({"speculation": asked, "trtllm_version": version}, with_prediction_layers())
    assert section == llm_api_document(made)["speculative_config"]


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"speculation": {"kind": "ngram", "draft_tokens": 3}}, "disable_overlap_scheduler", True),
        ({"engine.overlap_scheduler": False}, "disable_overlap_scheduler", True),
        ({"engine.allreduce_strategy": "min_latency"}, "allreduce_strategy", "MINLATENCY"),
        ({"engine.allreduce_strategy": "nccl_symmetric"}, "allreduce_strategy", "NCCL_SYMMETRIC"),
        ({"engine.moe_backend": "trtllm"}, "moe_config.backend", "TRTLLM"),
        ({"engine.expert_slots": 288}, "moe_config.load_balancer.num_slots", 288),
        ({"engine.min_latency": True}, "enable_min_latency", True),
        ({"engine.autotuner": False}, "enable_autotuner", False),
        ({"engine.stream_interval": 10}, "stream_interval", 10),
        ({"engine.cuda_graphs": False}, "cuda_graph_config", None),
        ({"engine.cuda_graph_padding": False}, "cuda_graph_config.enable_padding", False),
        ({"engine.cuda_graph_max_batch_size": 8}, "cuda_graph_config.max_batch_size", 8),
        ({"kv_cache.max_attention_window": (1024, 4096)}, "kv_cache_config.max_attention_window", [1024, 4096]),
        ({"kv_cache.host_cache_bytes": 1 << 35}, "kv_cache_config.host_cache_size", 1 << 35),
        ({"kv_cache.enable_partial_reuse": False}, "kv_cache_config.enable_partial_reuse", False),
        ({"limits.max_beam_width": 4}, "cuda_graph_config", None),
        ({"limits.max_beam_width": 4, "trtllm_version": "1.0.0"}, "enable_trtllm_sampler", True),
    ],
)
def test_engine_settings_are_in_upstreams_spelling(changes: dict[str, Any], key: str, value: object) -> None:
    """Each setting has its key, and what the release cannot combine is switched off."""
    assert value == dict(flat(llm_api_document(plan_of(changes))))[key]


def test_what_is_left_to_the_release_is_not_written() -> None:
    """A profile without engine settings gets the document it always got."""
    written = llm_api_document(plan_of())
    quiet = ("disable_overlap_scheduler", "allreduce_strategy", "moe_config", "enable_autotuner", "speculative_config",
             "stream_interval", "enable_min_latency", "enable_trtllm_sampler")  # fmt: skip
    assert [] == [key for key in quiet if key in written]


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
        ({"quantization.kv_cache": "nvfp4"}, "kv_cache_config.dtype", "auto"),  # 1.2.1 would warn, and do nothing
        ({"quantization.kv_cache": "nvfp4", "trtllm_version": "main"}, "kv_cache_config.dtype", "nvfp4"),
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
