"""What is known of a key over all tables, and what changed between two releases."""

from __future__ import annotations

import pytest

from trtllm_kit.upstream import known_releases
from trtllm_kit.upstream.lookup import Change, differences, find, releases_of, renames_of, suggestions
from trtllm_kit.upstream.renames import renamed, renamed_later, renames
from trtllm_kit.upstream.tables import TABLES, entries, table_names


@pytest.mark.parametrize("table", [one.name for one in TABLES])
def test_every_table_yields_rows_that_speak_of_a_known_release(table: str) -> None:
    """No row of any table is outside the span of the releases the kit knows, and each has a name."""
    rows = entries(table)
    assert rows
    for row in rows:
        never = str(row.facts.get("note", "")).startswith("no release")
        assert never or row.holds(row.since or known_releases()[0]), row
        assert row.key, row


@pytest.mark.parametrize("table", [one.name for one in TABLES])
def test_a_key_and_its_kind_have_one_row_a_release(table: str) -> None:
    """Two rows never answer for the same release, so a comparison has one answer."""
    for version in known_releases():
        held = [(row.key, row.kind) for row in entries(table) if row.holds(version)]
        assert sorted(set(held)) == sorted(held), version


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("kv_cache_config.tokens_per_block", {("llm-api", "kv_cache_config.tokens_per_block")}),
        ("enable_block_reuse", {("llm-api", "kv_cache_config.enable_block_reuse")}),
        ("--autoq_format", {("scripts", "--autoq_format")}),
        ("autoq_format", {("scripts", "--autoq_format")}),
        ("--lora_dir", {("trtllm-build", "--lora_dir")}),
        (
            "lora_dir",
            {
                ("trtllm-build", "--lora_dir"),
                ("llm-api", "lora_config.lora_dir"),
                ("llm-api", "build_config.lora_config.lora_dir"),
            },
        ),
        ("NCCL_DEBUG", {("environment", "NCCL_DEBUG")}),
        ("nccl_debug", {("environment", "NCCL_DEBUG")}),
        ("attention_dp_config.t*", {("llm-api", "attention_dp_config.timeout_iters")}),
        ("gpu_device_ids", {("repositories", "gpu_device_ids")}),
        ("accumulate_tokens", {("repositories", "accumulate_tokens")}),
        ("swiglu_without_fp8", {("builder", "swiglu_without_fp8")}),
        ("head_size_step", {("bounds", "head_size_step")}),
        ("no_such_key_anywhere", set()),
    ],
)  # fmt: skip
def test_a_key_is_found_by_its_name_its_last_part_or_a_pattern(key: str, found: set[tuple[str, str]]) -> None:
    """A bare word is a last part, a dotted key or a flag is whole; other letter cases come last; patterns are whole."""
    assert found == {(row.table, row.key) for row in find(key)}


def test_a_name_with_a_slip_is_answered_with_near_ones() -> None:
    """A slip of the finger leads to the key that was meant; gibberish to nothing."""
    assert "kv_cache_config.free_gpu_memory_fraction" == suggestions("free_gpu_mem_fraction")[0]
    assert () == suggestions("zzzzqqqq")


@pytest.mark.parametrize(
    ("word", "table_of"),
    [
        ("draft_tokens_external", "trtllm-build"), ("medusa", "trtllm-build"), ("lookahead_decoding", "trtllm-build"),
        ("explicit_draft_tokens", "trtllm-build"), ("eagle", "trtllm-build"), ("Eagle3", "llm-api"), ("MTP", "llm-api"),
        ("NGram", "llm-api"), ("Draft_Target", "llm-api"), ("PARD", "llm-api"), ("SA", "llm-api"), ("AUTO", "llm-api"),
    ],
)  # fmt: skip
def test_every_kind_of_speculation_of_both_worlds_has_a_row(word: str, table_of: str) -> None:
    """The modes of engines end with the builder, the words of the LLM API begin with it; none is missing."""
    rows = [row for row in entries("speculation") if row.key == word]
    assert rows
    assert (table_of == "llm-api") == any(row.holds("main") for row in rows)


def test_the_known_releases_of_a_row_are_named() -> None:
    """What came with 1.1 and is gone in main holds for the releases between."""
    row = next(row for row in find("sampler_type") if row.table == "llm-api")
    assert ("1.1.0", "1.2.0", "1.2.1", "1.3.0rc20", "1.3.0rc29") == releases_of(row)


CHANGES: list[tuple[str, str, str, str, Change]] = [
    ("llm-api", "1.0.0", "1.1.0", "kv_cache_config.tokens_per_block", "added"),
    ("llm-api", "1.1.0", "1.2.1", "kv_cache_config.free_gpu_memory_fraction", "changed"),
    ("llm-api", "1.1.0", "1.2.1", "build_config.max_batch_size", "renamed"),
    ("llm-api", "1.2.1", "main", "sampler_type", "removed"),
    ("llm-api", "1.2.1", "main", "speculative_config.acceptance_length_threshold", "removed"),
    ("scripts", "0.14.0", "0.15.0", "--auto_quantize_bits", "added"),
    ("scripts", "0.14.0", "0.15.0", "--weight_compression", "renamed"),
    ("families", "1.0.0", "1.2.1", "DeepseekV32ForCausalLM", "added"),
    ("environment", "1.1.0", "1.2.1", "TRTLLM_ENABLE_PDL", "changed"),
    ("trtllm-build", "1.2.1", "main", "--max_batch_size", "removed"),
]


@pytest.mark.parametrize(("table", "before", "after", "key", "change"), CHANGES)
def test_what_changed_is_named(table: str, before: str, after: str, key: str, change: Change) -> None:
    """Keys that came, went, were renamed or have another default are told apart."""
    found = {one.change for one in differences(table, before, after) if one.key == key}
    if key == "speculative_config.acceptance_length_threshold":
        assert {"renamed"} == found
    else:
        assert {change} == found


@pytest.mark.parametrize("table", table_names())
def test_nothing_changes_from_a_release_to_itself(table: str) -> None:
    """The comparison of a release with itself is empty."""
    assert () == differences(table, "1.2.1", "1.2.1")


def test_the_inside_of_a_section_that_was_not_read_is_not_called_new() -> None:
    """plugin_config is there in 1.1.0 and its inside was read in 1.2.1 alone: none of it is said to be added."""
    assert [] == [one for one in differences("llm-api", "1.1.0", "1.2.1") if ".plugin_config." in one.key]


def test_a_changed_default_is_told_from_both_sides() -> None:
    """What it was and what it is stand beside each other, and nothing that stayed."""
    key = "kv_cache_config.free_gpu_memory_fraction"
    one = next(one for one in differences("llm-api", "1.1.0", "1.2.1") if one.key == key)
    assert ({"default": None}, {"default": 0.9}, "read") == (one.before, one.after, one.certainty)


def test_a_comparison_with_a_release_between_those_read_is_not_certain() -> None:
    """1.3.0rc14 was read beside, not in; what is said of it is near."""
    found = [one for one in differences("llm-api", "1.2.1", "1.3.0rc14") if one.table == "llm-api"]
    assert {"near"} == {one.certainty for one in found}


def test_every_rename_names_a_key_that_some_table_has() -> None:
    """The new name is taken in the release of the rename; the old one is not, unless the row says that it still is."""
    for row in renames():
        if not row.new or row.since is None:
            continue
        assert any(entry.key == row.new and entry.holds(row.since) for entry in find(row.new)), row
        if "still taken" not in row.note:
            taken = [entry for entry in find(row.old) if entry.key == row.old and entry.kind != "tensorrt"]
            assert not any(entry.holds(row.since) for entry in taken), row


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("enable_sleep", "main", "became sleep_config in 1.4.0rc0"),
        ("enable_sleep", "1.2.1", None),
        ("sampler_type", "main", "is gone in 1.4.0rc0: the Torch sampler is the only one"),
        ("max_batch_size", "main", None),
    ],
)
def test_a_rename_says_what_to_write_instead(name: str, version: str, message: str | None) -> None:
    """From its release on an old name leads to the new one; before it there is nothing to say."""
    found = renamed(name, version)
    assert message == (found.message if found else None)


def test_a_name_that_comes_later_leads_back_to_the_older_one() -> None:
    """In 1.2.1 sleep_config is still enable_sleep; where both are known nothing is said."""
    found = renamed_later("sleep_config", "1.2.1")
    assert found is not None
    assert "enable_sleep" == found.old
    assert renamed_later("sleep_config", "main") is None
    assert {"enable_sleep"} == {row.old for row in renames_of(["sleep_config"])}
