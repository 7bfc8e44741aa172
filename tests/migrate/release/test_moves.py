"""Documents moved to another release, setting by setting."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.migrate.release.change import UNSAID, How
from trtllm_kit.migrate.release.moves import move


def moved(document: dict[str, Any], source: str, target: str) -> dict[str, Any]:
    """Return the new document, defaults left alone."""
    return move(document, source, target, keep_behaviour=False).document


@pytest.mark.parametrize(
    ("source", "target", "document", "expected"),
    [
        ("0.19.0", "0.21.0", {"pytorch_backend_config": {"use_cuda_graph": True, "enable_overlap_scheduler": True}},
         {"use_cuda_graph": True, "disable_overlap_scheduler": False}),
        ("0.21.0", "1.0.0", {"use_cuda_graph": True, "cuda_graph_batch_sizes": [1, 2], "kv_cache_dtype": "fp8"},
         {"cuda_graph_config": {"batch_sizes": [1, 2]}, "kv_cache_config": {"dtype": "fp8"}}),
        ("0.21.0", "1.0.0", {"use_cuda_graph": False}, {"cuda_graph_config": None}),
        ("1.0.0", "0.21.0", {"cuda_graph_config": None}, {"use_cuda_graph": False}),
        ("1.2.1", "0.20.0", {"cuda_graph_config": {"enable_padding": True}},
         {"pytorch_backend_config": {"use_cuda_graph": True, "cuda_graph_padding_enabled": True}}),
        ("1.0.0", "1.2.1", {"build_config": {"max_batch_size": 8}}, {"max_batch_size": 8}),
        ("1.2.1", "1.0.0", {"max_batch_size": 8}, {"build_config": {"max_batch_size": 8}}),
        ("1.0.0", "1.1.0", {"enable_trtllm_sampler": True}, {"sampler_type": "TRTLLMSampler"}),
        ("1.2.1", "main", {"enable_sleep": True}, {"sleep_config": {}}),
        ("main", "1.2.1", {"speculative_config": {"decoding_type": "Eagle3", "speculative_model_dir": "/d"}},
         {"speculative_config": {"decoding_type": "Eagle", "speculative_model_dir": "/d"}}),
        ("0.21.0", "1.0.0", {"speculative_config": {"decoding_type": "NGram", "prompt_lookup_num_tokens": 3}},
         {"speculative_config": {"decoding_type": "NGram", "max_draft_len": 3}}),
        ("1.2.1", "1.3.0rc20", {"speculative_config": {"decoding_type": "DraftTarget", "max_draft_len": 3}},
         {"speculative_config": {"decoding_type": "Draft_Target", "max_draft_len": 3}}),
        ("0.20.0", "0.21.0", {"_reasoning_parser": "deepseek-r1"}, {"reasoning_parser": "deepseek-r1"}),
        ("0.21.0", "1.0.0", {"moe_backend": "TRTLLM", "moe_max_num_tokens": 4096},
         {"moe_config": {"backend": "TRTLLM", "max_num_tokens": 4096}}),
        ("main", "1.1.0", {"load_format": 1}, {"load_format": "DUMMY"}),
        ("1.2.1", "main", {"lora_config": {"swap_gate_up_proj": False}}, {"lora_config": {}}),
    ],
)  # fmt: skip
def test_a_setting_goes_where_the_other_release_has_it(
    source: str, target: str, document: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Renamed, moved into or out of a section, turned round, switched, or in another word."""
    assert expected == moved(document, source, target)


@pytest.mark.parametrize(
    ("target", "document", "how"),
    [
        ("main", {"kv_cache_config": {"onboard_blocks": True}}, How.EXACT),
        ("main", {"kv_cache_config": {"onboard_blocks": False}}, How.LOST),
        ("main", {"moe_config": {"backend": "WIDEEP"}}, How.LOST),
        ("main", {"sampler_type": "TRTLLMSampler"}, How.LOST),
        ("main", {"sampler_type": "auto"}, How.EXACT),
        ("main", {"speculative_config": {"decoding_type": "Medusa"}}, How.LOST),
        ("main", {"speculative_config": {"decoding_type": "NGram", "acceptance_length_threshold": 1.5}}, How.LOST),
        ("1.0.0", {"kv_cache_config": {"tokens_per_block": 32}}, How.EXACT),
        ("1.0.0", {"kv_cache_config": {"tokens_per_block": 64}}, How.LOST),
        ("1.0.0", {"return_perf_metrics": False}, How.EXACT),
        ("1.0.0", {"return_perf_metrics": True}, How.LOST),
        ("1.1.0", {"cache_transceiver_config": {"backend": "MOONCAKE"}}, How.LOST),
    ],
)
def test_what_leaves_a_document_is_told(target: str, document: dict[str, Any], how: How) -> None:
    """Exactly, where the release does so by itself; lost, where it does not."""
    made = move(document, "1.2.1", target, keep_behaviour=False)
    assert [("", UNSAID, how)] == [(row.to, row.after, row.how) for row in made.rows]


@pytest.mark.parametrize(
    ("source", "target", "document", "explicit"),
    [
        ("0.21.0", "1.0.0", {"backend": "pytorch"}, {"cuda_graph_config": None}),
        ("1.0.0", "0.21.0", {}, {"backend": "pytorch", "use_cuda_graph": True}),
        ("0.19.0", "0.20.0", {"backend": "pytorch"}, {"pytorch_backend_config": {"disable_overlap_scheduler": True}}),
        ("1.2.1", "main", {}, {
            "kv_cache_config": {"use_kv_cache_manager_v2": False}, "moe_config": {"backend": "CUTLASS"},
            "scheduler_config": {"enable_prefix_aware_scheduling": False}}),
        ("1.1.0", "1.2.1", {}, {}),
        ("1.3.0rc20", "main", {"torch_compile_config": {"enable_inductor": True}}, {
            "torch_compile_config": {"enable_inductor": True, "max_num_streams": 1},
            "kv_cache_config": {"use_kv_cache_manager_v2": False},
            "scheduler_config": {"enable_prefix_aware_scheduling": False}}),
    ],
)  # fmt: skip
def test_a_default_that_changed_is_written_down(
    source: str, target: str, document: dict[str, Any], explicit: dict[str, Any]
) -> None:
    """What a release did by itself, the document says for the next, and nothing that both do alike."""
    assert document | explicit == move(document, source, target).document


def test_settings_that_had_no_effect_do_not_begin_to_have_one() -> None:
    """Sizes of graphs in 0.21 without use_cuda_graph captured nothing; in 1.0 a section would switch graphs on."""
    made = move({"backend": "pytorch", "cuda_graph_batch_sizes": [1, 2]}, "0.21.0", "1.0.0")
    assert {"backend": "pytorch", "cuda_graph_config": None} == made.document
    assert [("cuda_graph_batch_sizes", How.APPROXIMATE)] == [
        (row.key, row.how) for row in made.rows if row.before != UNSAID
    ]


def test_null_switches_off_whatever_stands_before_it() -> None:
    """Sizes given before use_cuda_graph: false are told to be without effect."""
    made = move({"cuda_graph_batch_sizes": [1], "use_cuda_graph": False}, "0.21.0", "1.0.0", keep_behaviour=False)
    assert {"cuda_graph_config": None} == made.document
    assert {"cuda_graph_batch_sizes", "use_cuda_graph"} == {row.key for row in made.rows}


def test_two_settings_that_become_one_are_both_told() -> None:
    """0.21 has two names for the draft model; the second one, which differs, is lost."""
    section = {"decoding_type": "Eagle", "pytorch_weights_path": "/a", "speculative_model": "/b"}
    made = move({"speculative_config": section}, "0.21.0", "1.0.0", keep_behaviour=False)
    assert {"decoding_type": "Eagle", "speculative_model_dir": "/a"} == made.document["speculative_config"]
    assert [How.EXACT, How.LOST] == [row.how for row in made.rows]


def test_a_limit_that_another_setting_overwrote_is_told_when_it_begins_to_matter() -> None:
    """In 1.0 trtllm-serve overwrites max_batch_size at the top level; 1.2 goes by it."""
    made = move({"max_batch_size": 8}, "1.0.0", "1.2.1", keep_behaviour=False)
    assert {"max_batch_size": 8} == made.document
    assert [("max_batch_size", "max_batch_size", How.APPROXIMATE)] == [(row.key, row.to, row.how) for row in made.rows]


def test_a_key_that_no_release_has_is_left_to_its_owner() -> None:
    """It is neither dropped nor told as a change; the rules of both releases speak against it."""
    made = move({"colour": "red"}, "1.0.0", "1.2.1")
    assert ({"colour": "red"}, ()) == (made.document, made.rows)


def test_a_backend_that_the_document_leaves_open_is_told() -> None:
    """0.21 builds engines unless it is told otherwise, and 1.0 does not: no document says that."""
    rows = [row for row in move({}, "0.21.0", "1.0.0").rows if row.key == "backend"]
    assert [("", How.APPROXIMATE)] == [(row.to, row.how) for row in rows]


def test_nothing_that_both_releases_take_alike_has_a_row() -> None:
    """A document of common keys is the same document."""
    document = {
        "tensor_parallel_size": 4,
        "kv_cache_config": {"enable_block_reuse": False},
        "enable_chunked_prefill": True,
    }
    made = move(document, "1.1.0", "1.2.1")
    assert (document, ()) == (made.document, made.rows)


@pytest.mark.parametrize("keys", [("use_cuda_graph", "cuda_graph_config"), ("cuda_graph_config", "use_cuda_graph")])
def test_a_switch_wins_over_the_section_that_stands_beside_it(keys: tuple[str, str]) -> None:
    """Off is off in either order, and what stands in the section is told as without effect."""
    document = {"use_cuda_graph": False, "cuda_graph_config": {"max_batch_size": 8}}
    made = move({key: document[key] for key in keys}, "0.21.0", "1.0.0", keep_behaviour=False)
    assert {"cuda_graph_config": None} == made.document
    told = {row.key: (row.to, row.how) for row in made.rows}
    assert {
        "use_cuda_graph": ("cuda_graph_config", How.EXACT), "cuda_graph_config.max_batch_size": ("", How.APPROXIMATE)
    } == told  # fmt: skip
