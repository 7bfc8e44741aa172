"""What a release does where a document says nothing."""

from __future__ import annotations

import pytest

from tests.migrate.release.documents import RELEASES
from trtllm_kit.upstream.defaults import choices, default_of, defaults, means_the_same, word_instead
from trtllm_kit.upstream.facts import read_table
from trtllm_kit.upstream.precedence import key_of_option, precedence
from trtllm_kit.upstream.serve_options import near_option, option_named, option_of_flag


def test_every_default_that_differs_between_releases_is_decided() -> None:
    """It is a choice of the table, or a row says that the two spellings mean the same."""
    sections = (("llm_api", "keys"), ("llm_api_inside", "keys"), ("llm_api_early", "keys"), ("llm_api_early", "kinds"))
    found: dict[tuple[str, str | None], set[str]] = {}
    for table, section in sections:
        for row in read_table(table)[section]:
            if "default" in row and row.get("backend") != "tensorrt" and row["type"] != "const":
                found.setdefault((row["key"], row.get("kind")), set()).add(repr(row["default"]).lower())
    differs = {key for (key, _), values in found.items() if len(values) > 1}
    decided = {row.key for row in defaults()} | set(means_the_same())
    assert {"max_batch_size", "moe_config.backend"} < differs
    assert set() == differs - decided


@pytest.mark.parametrize("name", choices())
def test_a_choice_has_at_most_one_row_a_release(name: str) -> None:
    """Two answers to what a release does would contradict each other."""
    for version in RELEASES:
        assert 1 >= sum(row.name == name and row.holds(version) for row in defaults())


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("cuda graphs", ("0.21.0", "off"), ("1.0.0", "on")),
        ("overlap scheduler", ("0.19.0", "off"), ("0.20.0", "on")),
        ("expert kernels", ("1.2.1", "CUTLASS"), ("main", "AUTO")),
        ("KV cache manager", ("1.2.1", False), ("main", "auto")),
        ("transfer time-out", ("1.2.1", None), ("main", 60000)),
        ("backend", ("0.21.0", "tensorrt"), ("1.0.0", "pytorch")),
    ],
)
def test_what_changed_by_itself_is_known(name: str, before: tuple[str, object], after: tuple[str, object]) -> None:
    """Both sides of a change of defaults."""
    found = [default_of(name, version) for version, _ in (before, after)]
    assert [before[1], after[1]] == [row.does if row else "unread" for row in found]


def test_a_choice_is_said_in_the_words_of_its_release() -> None:
    """Graphs are switched off with false in 0.21 and with null in 1.0."""
    spelt = [row.says("off") for version in ("0.21.0", "1.0.0") if (row := default_of("cuda graphs", version))]
    assert [(True, False), (True, None)] == spelt


@pytest.mark.parametrize(
    ("key", "value", "version", "new"),
    [
        ("speculative_config.decoding_type", "Eagle3", "1.2.1", "Eagle"),
        ("speculative_config.decoding_type", "Eagle3", "main", None),
        ("load_format", 1, "1.2.1", "DUMMY"),
        ("load_format", True, "1.2.1", None),
    ],
)
def test_a_word_leads_to_that_of_another_release(key: str, value: object, version: str, new: object) -> None:
    """In the releases that do not take it, and there alone; true is no 1."""
    found = word_instead(key, value, version)
    assert new == (found.new if found else None)


@pytest.mark.parametrize(
    ("version", "name", "flag"),
    [
        ("1.2.1", "--config", "--extra_llm_api_options"),
        ("1.1.0", "--config", None),
        ("1.2.1", "--tensor_parallel_size", "--tp_size"),
        ("1.2.1", "--set", None),
        ("main", "--set", "--set"),
    ],
)
def test_an_option_is_found_by_each_of_its_names(version: str, name: str, flag: str | None) -> None:
    """As the release has them."""
    found = option_named(version, name)
    assert flag == (found.flag if found else None)


def test_an_option_with_a_slip_leads_to_a_near_one_and_sets_a_key() -> None:
    """--max_batchsize was meant to be --max_batch_size; --pp_size sets pipeline_parallel_size."""
    assert "--max_batch_size" == near_option("1.2.1", "--max_batchsize")
    assert "pipeline_parallel_size" == key_of_option("--pp_size")
    assert key_of_option("--port") is None


def test_the_tensorrt_backend_leaves_the_choices_of_the_command() -> None:
    """1.2.1 takes it, main does not."""
    found = [option_of_flag(version, "--backend") for version in ("1.2.1", "main")]
    assert [True, False] == ["tensorrt" in row.choices for row in found if row]


def test_which_sections_are_merged_is_known() -> None:
    """1.0 replaces whole sections, 1.2 all but that of the KV cache, main none."""
    rows = [precedence(version) for version in ("1.0.0", "1.2.1", "main")]
    assert [(), ("kv_cache_config",), ("*",)] == [row.by_key for row in rows if row]
