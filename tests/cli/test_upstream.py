"""``trtkit upstream`` as its users run it."""

from __future__ import annotations

from tests.support.cli import trtkit


def test_a_key_is_shown_with_its_releases_default_and_source() -> None:
    """Both ranges of a key whose default changed, each with what was read and where."""
    ran = trtkit("upstream", "show", "kv_cache_config.free_gpu_memory_fraction")
    assert (0, "") == (ran.code, ran.err)
    for text in ("from 1.0, gone in 1.2", "from 1.2 on", "default null", "default 0.9", "read", "llmapi/llm_args.py"):
        assert text in ran.out, text


def test_the_same_stands_in_json_with_the_releases_named() -> None:
    """One object: every row with its facts, its certainty, and the known releases it speaks of."""
    found = trtkit("--json", "upstream", "show", "max_draft_len", "--table", "trtllm-build").json["found"]
    options = [row for row in found if row["key"] == "--max_draft_len"]
    assert [0] == [row["facts"]["default"] for row in options]
    assert "0.18.2" in options[0]["releases"]
    assert "main" not in options[0]["releases"]


def test_an_unknown_key_ends_with_one_and_the_nearest() -> None:
    """The answer is no: exit code 1, what is near, and one command to try."""
    ran = trtkit("upstream", "show", "free_gpu_mem_fraction")
    assert 1 == ran.code
    lines = ran.out.splitlines()
    assert "free_gpu_mem_fraction is in no table" == lines[0]
    assert "kv_cache_config.free_gpu_memory_fraction" in lines[1]
    assert lines[2].startswith("try: trtkit upstream show ")


def test_an_old_name_is_answered_with_the_new_one() -> None:
    """A key of a stale document is known by its rename alone."""
    ran = trtkit("upstream", "show", "use_cuda_graph")
    assert 0 == ran.code
    assert "cuda_graph_config" in ran.out


def test_two_releases_are_compared_table_by_table() -> None:
    """1.0 and 1.2 stand for the newest of their series; each change says which kind it is."""
    found = trtkit("--json", "upstream", "diff", "1.0", "1.2").json
    assert ("1.0.0", "1.2.1") == (found["before"], found["after"])
    changes = {one["key"]: one["change"] for one in found["tables"]["llm-api"]}
    assert "added" == changes["kv_cache_config.tokens_per_block"]
    assert "renamed" == changes["build_config.max_num_tokens"]


def test_one_table_alone_is_compared_in_words() -> None:
    """Only the table asked for, with the change, the key and both sides."""
    ran = trtkit("upstream", "diff", "1.1", "1.2", "--table", "environment")
    assert 0 == ran.code
    assert "environment: 1.1.0 -> 1.2.1" in ran.out
    assert "TRTLLM_ENABLE_PDL" in ran.out
    assert "llm-api" not in ran.out


def test_a_release_or_table_that_is_none_is_a_usage_error() -> None:
    """Exit code 2 with what there is."""
    release = trtkit("upstream", "diff", "1.0", "9.9")
    assert 2 == release.code
    assert "'9.9' is not a release trtkit knows" in release.err
    table = trtkit("upstream", "diff", "1.0", "1.2", "--table", "keys")
    assert 2 == table.code
    assert "llm-api" in table.err


def test_the_tables_are_listed_with_their_releases() -> None:
    """Every table with what it is about, from 0.12.0 to main."""
    found = trtkit("--json", "upstream", "list").json
    assert {"llm-api", "trtllm-build", "scripts", "metrics", "families"} <= {one["name"] for one in found["tables"]}
    assert ("0.12.0", "main") == (found["releases"][0], found["releases"][-1])


def test_a_flag_may_be_asked_for_with_its_dashes() -> None:
    """Suggestions spell flags with dashes, so the command that they name must work."""
    ran = trtkit("upstream", "show", "--max_batch_size")
    assert (0, "") == (ran.code, ran.err)
    assert "--max_batch_size (trtllm-build)" in ran.out


def test_an_empty_key_is_a_usage_error() -> None:
    """No key is empty; that of a variable which is not set names nothing."""
    ran = trtkit("upstream", "show", "")
    assert (2, "") == (ran.code, ran.out)
    assert "KEY is empty" in ran.err


def test_an_unknown_release_is_named_as_the_argument_it_is() -> None:
    """The error speaks of the command line, not of a profile."""
    ran = trtkit("upstream", "diff", "1.0", "9.9")
    assert (2, "") == (ran.code, ran.out)
    assert "B '9.9' is not a release trtkit knows" in ran.err
    assert "try: trtkit upstream list" in ran.err
    assert "trtllm_version" not in ran.err
