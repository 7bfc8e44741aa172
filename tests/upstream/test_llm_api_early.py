"""The LLM API of 0.17 to 0.21: a table of its own, whose keys came, went and moved before 1.0."""

from __future__ import annotations

import pytest

from trtllm_kit.upstream.llm_api import (
    keys_taken,
    llm_api_key,
    llm_api_keys,
    refuses_unknown,
    releases_read,
    unknown_llm_api_keys,
)
from trtllm_kit.upstream.llm_api_inside import inside_key, inside_keys, is_early, kinds_of
from trtllm_kit.upstream.lookup import differences
from trtllm_kit.upstream.renames import renamed

READ = ("0.18.2", "0.19.0", "0.20.0", "0.21.0")


def at_the_top(version: str) -> set[str]:
    """Return the keys of a release that stand in no section."""
    return {key for key in keys_taken(version) if "." not in key}


CAME_AND_WENT: list[tuple[str, str, set[str], set[str]]] = [
    ("0.18.2", "0.19.0",
     {"_num_postprocess_workers", "_postprocess_tokenizer_dir", "enable_attention_dp", "gather_generation_logits",
      "gpus_per_node", "max_beam_width", "max_input_len", "max_seq_len"},
     {"speculative_model", "use_runtime_defaults"}),
    ("0.19.0", "0.20.0",
     {"_reasoning_parser", "cache_transceiver_config", "lora_config", "moe_cluster_parallel_size"}, set()),
    ("0.20.0", "0.21.0",
     {"attn_backend", "autotuner_enabled", "cuda_graph_batch_sizes", "cuda_graph_max_batch_size",
      "cuda_graph_padding_enabled", "disable_overlap_scheduler", "enable_iter_perf_stats", "enable_iter_req_stats",
      "enable_layerwise_nvtx_marker", "enable_min_latency", "enable_trtllm_sampler",
      "garbage_collection_gen0_threshold", "kv_cache_dtype", "mixed_sampler", "moe_backend", "moe_load_balancer",
      "moe_max_num_tokens", "num_postprocess_workers", "postprocess_tokenizer_dir", "print_iter_log",
      "reasoning_parser", "torch_compile_config", "use_cuda_graph"},
     {"_num_postprocess_workers", "_postprocess_tokenizer_dir", "_reasoning_parser", "pytorch_backend_config"}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "came", "went"), CAME_AND_WENT)
def test_what_came_and_went_between_two_releases_read(before: str, after: str, came: set[str], went: set[str]) -> None:
    """0.21 took the PyTorch backend's settings to the top level, and the underscores off three names."""
    assert (came, went) == (at_the_top(after) - at_the_top(before), at_the_top(before) - at_the_top(after))


def test_a_release_has_the_keys_of_its_own_table_only() -> None:
    """No row of 1.0 speaks of 0.21, and none of 0.21 of 1.0."""
    assert [True, True, False, False] == [is_early(name) for name in ("0.17.0", "0.21.0", "1.0.0", "main")]
    assert [None, None] == [llm_api_key("0.21.0", "cuda_graph_config"), llm_api_key("1.0.0", "use_cuda_graph")]
    assert all(not row.holds("1.0.0") for row in (*llm_api_keys(early=True), *inside_keys(early=True)))


@pytest.mark.parametrize(
    ("version", "key", "default", "certainty"),
    [
        ("0.18.2", "auto_parallel_world_size", 1, "read"),
        ("0.19.0", "auto_parallel_world_size", None, "read"),
        ("0.20.0", "max_input_len", 1024, "read"),
        ("0.21.0", "max_input_len", None, "read"),
        ("0.21.0", "moe_backend", "CUTLASS", "read"),
        ("0.17.0", "max_loras", 4, "near"),
        ("0.21.0", "kv_cache_config.enable_block_reuse", True, "read"),
        ("0.19.0", "kv_cache_config.enable_block_reuse", True, "near"),
        ("0.18.0", "pytorch_backend_config.print_iter_log", True, "near"),
        ("0.20.0", "pytorch_backend_config.print_iter_log", False, "near"),
    ],
)
def test_a_default_is_the_releases_own(version: str, key: str, default: object, certainty: str) -> None:
    """What was read in the release's own page is certain, the rest is near."""
    found = llm_api_key(version, key)
    assert found is not None
    assert (default, certainty) == (found.default, found.certainty)


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("0.18.2", {"Lookahead"}),
        ("0.19.0", {"Lookahead", "Medusa", "Eagle", "MTP"}),
        ("0.20.0", {"Lookahead", "Medusa", "Eagle", "MTP"}),
        ("0.21.0", {"Lookahead", "Medusa", "Eagle", "MTP", "NGram", "DraftTarget"}),
    ],
)
def test_the_words_of_speculation_are_those_of_the_release(version: str, kinds: set[str]) -> None:
    """N-grams and draft models came with 0.21."""
    assert kinds == set(kinds_of(version, "speculative_config"))


def test_the_path_of_a_drafts_weights_changed_its_name_with_each_release() -> None:
    """0.20 has the path of EAGLE's weights, 0.21 a path of any, and 1.0 the folder of the draft model."""
    names = ("pytorch_eagle_weights_path", "pytorch_weights_path", "speculative_model_dir")
    held = {
        version: [name for name in names if inside_key(version, f"speculative_config.{name}", "Eagle") is not None]
        for version in ("0.20.0", "0.21.0", "1.0.0")
    }
    assert {"0.20.0": names[:1], "0.21.0": names[1:2], "1.0.0": names[2:]} == {
        version: tuple(found) for version, found in held.items()
    }


@pytest.mark.parametrize(
    ("version", "document", "unknown"),
    [
        ("0.21.0", {"use_cuda_graph": True, "pytorch_backend_config": {}}, ("pytorch_backend_config",)),
        ("0.20.0", {"use_cuda_graph": True, "pytorch_backend_config": {"use_cuda_graph": True}}, ("use_cuda_graph",)),
        ("0.20.0", {"pytorch_backend_config": {"enable_overlap_scheduler": True}},
         ("pytorch_backend_config.enable_overlap_scheduler",)),
        ("0.19.0", {"pytorch_backend_config": {"enable_overlap_scheduler": True}}, ()),
        ("0.20.0", {"speculative_config": {"decoding_type": "NGram"}}, ("speculative_config.decoding_type",)),
        ("0.21.0", {"speculative_config": {"decoding_type": "NGram", "prompt_lookup_num_tokens": 2}}, ()),
        ("0.21.0", {"kv_cache_config": {"dtype": "fp8"}, "build_config": {"anything": 1}}, ("kv_cache_config.dtype",)),
    ],
)  # fmt: skip
def test_unknown_keys_of_an_early_release_are_found(
    version: str, document: dict[str, object], unknown: tuple[str, ...]
) -> None:
    """A document of the next release, or of the one before, is told by its keys."""
    assert unknown == unknown_llm_api_keys(version, document)


@pytest.mark.parametrize(
    ("version", "key", "refused"),
    [
        ("0.19.0", "colour", False),
        ("0.20.0", "colour", False),
        ("0.21.0", "colour", True),
        ("0.21.0", "kv_cache_config.colour", False),
        ("0.20.0", "pytorch_backend_config.colour", True),
        ("1.0.0", "kv_cache_config.colour", True),
    ],
)
def test_some_releases_read_on_over_a_key_they_do_not_know(version: str, key: str, refused: bool) -> None:
    """0.19 and 0.20 take any key at the top, 0.21 any inside a section; 1.0 takes none."""
    assert refused == refuses_unknown(version, key)


def test_a_key_that_moved_twice_is_led_to_where_the_release_has_it() -> None:
    """pytorch_backend_config went to the top level in 0.21, and from there into sections in 1.0."""
    old = "pytorch_backend_config.use_cuda_graph"
    led = [renamed(old, version) for version in ("0.20.0", "0.21.0", "1.0.0")]
    assert [None, "use_cuda_graph", "cuda_graph_config"] == [row.new if row else None for row in led]


def test_a_comparison_across_1_0_shows_what_moved() -> None:
    """0.21 and 1.0 stand in two tables, and compare as one."""
    found = {one.key: (one.change, one.after.get("key")) for one in differences("llm-api", "0.21.0", "1.0.0")}
    assert ("renamed", "moe_config.max_num_tokens") == found["moe_max_num_tokens"]
    assert ("added", None) == found["moe_config"]
    assert "max_num_tokens" not in found


def test_the_releases_whose_top_level_was_read_are_named() -> None:
    """0.17 and 0.18.0 have no page of their own in what was read."""
    assert READ == releases_read(early=True)
