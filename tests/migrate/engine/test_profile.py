"""From rows to a profile: which of several settings holds, what is assumed, which machine, what profiles refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.migrate.engine.settings import found_of
from trtllm_kit.errors import UsageError
from trtllm_kit.migrate.engine.chosen import assumed, choose, written
from trtllm_kit.migrate.engine.machine import choose_machine, gpus_of
from trtllm_kit.migrate.engine.meaning import rows_of
from trtllm_kit.migrate.engine.profile import Asked, Profiled, make_profile, profile_name, profile_text
from trtllm_kit.migrate.found import Found, Reader
from trtllm_kit.spec.load import hardware_names, load_hardware, load_profile

BUILD, ENGINE, PARAMETER = Reader.BUILD, Reader.ENGINE, Reader.PARAMETER
ASKED = Asked("1.2.1", "h100x2", "named with --hardware", "engines", "build.sh")
MACHINES = {name: load_hardware(name) for name in hardware_names()}


def made_of(found: Found, asked: Asked = ASKED) -> Profiled:
    """Make the profile of what was found."""
    rows = choose(rows_of(found, asked.release))
    return make_profile(rows, assumed(found, rows), asked)


def test_of_one_reader_the_later_setting_holds_and_both_rows_say_so() -> None:
    """As on a command line; the row of the earlier one names the place of the other."""
    first, second = choose(rows_of(found_of((BUILD, "max_beam_width", 1), (BUILD, "max_beam_width", 4)), "1.2.1"))

    assert ("build.sh:2", None) == (str(first.overruled_by), second.overruled_by)
    assert "later one holds" in first.note
    assert (False, True) == (first.writes, second.writes)


def test_the_runtimes_word_holds_before_that_of_the_build() -> None:
    """A parameter of the model before the engine's config.json, and that before the options of a build."""
    rows = choose(
        rows_of(
            found_of(
                (PARAMETER, "max_beam_width", "2", "tensorrt_llm"),
                (ENGINE, "build_config.max_beam_width", 4),
                (BUILD, "max_beam_width", 8),
            ),
            "1.2.1",
        )
    )

    assert {"limits.max_beam_width": 2} == {key: row.value for key, row in written(rows).items()}
    assert [False, True, True] == [row.overruled_by is not None for row in rows]


def test_a_draft_models_parameters_do_not_overrule_those_of_the_model_itself() -> None:
    """The model named tensorrt_llm comes before others, wherever it stands."""
    name = "kv_cache_free_gpu_mem_fraction"
    rows = choose(
        rows_of(
            found_of((PARAMETER, name, "0.8", "tensorrt_llm"), (PARAMETER, name, "0.1", "tensorrt_llm_draft")), "1.2.1"
        )
    )

    assert [0.8] == [row.value for row in written(rows).values()]


def test_settings_that_say_the_same_all_hold() -> None:
    """None of them is overruled."""
    rows = choose(rows_of(found_of((BUILD, "max_seq_len", 2048), (ENGINE, "build_config.max_seq_len", 2048)), "1.2.1"))

    assert [None, None] == [row.overruled_by for row in rows]


@pytest.mark.parametrize(("release", "batch"), [("0.13.0", 256), ("0.14.0", 2048), ("", 2048)])
def test_the_builders_own_defaults_are_written(release: str, batch: int) -> None:
    """They hold where no option says otherwise, and differ from a profile's own."""
    found = found_of((BUILD, "gemm_plugin", "auto"), release=release)
    kept = {one.key: one.value for one in assumed(found, choose(rows_of(found, "1.2.1")))}

    assert {"limits.max_batch_size": batch, "limits.max_num_tokens": 8192} == kept


def test_what_an_engine_says_itself_is_not_assumed() -> None:
    """Its config.json holds every limit; the model's positions stand in for a length that nobody set."""
    found = found_of(
        (ENGINE, "build_config.max_batch_size", 8), (ENGINE, "pretrained_config.max_position_embeddings", 4096)
    )
    kept = {one.key: one.value for one in assumed(found, choose(rows_of(found, "1.2.1")))}

    assert {"limits.max_seq_len": 4096} == kept


@pytest.mark.parametrize(("longest", "load"), [(512, (256, 256)), (2048, ()), (3, (1, 2))])
def test_the_load_to_size_for_is_no_longer_than_a_sequence(longest: int, load: tuple[int, ...]) -> None:
    """A profile's own is 1,024 and 1,024 tokens, which a shorter limit refuses."""
    found = found_of((ENGINE, "build_config.max_seq_len", longest))

    assert load == tuple(one.value for one in assumed(found, choose(rows_of(found, "1.2.1"))))


def test_prompts_are_read_whole_where_nobody_switched_chunks_on() -> None:
    """The C++ backend's default is off, a profile's is on."""
    unset = found_of((PARAMETER, "gpt_model_type", "inflight_fused_batching", "tensorrt_llm"))
    asked = found_of((PARAMETER, "enable_chunked_context", "true", "tensorrt_llm"))

    assert [("scheduler.chunked_prefill", False)] == [
        (one.key, one.value) for one in assumed(unset, choose(rows_of(unset, "1.2.1")))
    ]
    assert () == assumed(asked, choose(rows_of(asked, "1.2.1")))


def test_the_profile_says_where_each_value_came_from(tmp_path: Path) -> None:
    """As a comment behind it, and spec.load reads the text with the values of the rows."""
    made = made_of(
        found_of(
            (BUILD, "max_batch_size", 64),
            (PARAMETER, "max_attention_window_size", "4096", "tensorrt_llm"),
            (Reader.ENVIRONMENT, "NCCL_DEBUG", "INFO"),
        )
    )
    text = profile_text(made, ASKED)
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    profile = load_profile(str(path)).profile

    assert "  max_batch_size: 64  # build.sh:1: max_batch_size 64\n" in text
    assert (64, (4096,), {"NCCL_DEBUG": "INFO"}) == (
        profile.limits.max_batch_size,
        profile.kv_cache.max_attention_window,
        profile.environment,
    )
    assert ("1.2.1", "llm-api", "h100x2") == (profile.trtllm_version, profile.toolchain, profile.hardware)


@pytest.mark.parametrize(
    ("one", "key"),
    [
        ((PARAMETER, "kv_cache_free_gpu_mem_fraction", "1.5", "tensorrt_llm"), "kv_cache.free_gpu_memory_fraction"),
        ((BUILD, "max_batch_size", 0), "limits.max_batch_size"),
        ((Reader.LAUNCHER, "http_port", 99999), "serve.http_port"),
        ((Reader.TRITON, "http_address", "not a host!"), "serve.host"),
    ],
)
def test_a_value_that_profiles_refuse_leaves_the_profile_and_its_row_says_why(one: tuple[Any, ...], key: str) -> None:
    """The other values stay."""
    made = made_of(found_of(one, (BUILD, "max_seq_len", 2048)))

    assert ("none", None, True) == (made.rows[0].how, made.rows[0].value, key in made.rows[0].lost)
    assert key not in made.comments
    assert 2048 == made.document["limits"]["max_seq_len"]


def test_hostile_texts_of_files_stay_texts(tmp_path: Path) -> None:
    """What looks like YAML in a value or a name of a file is quoted, and breaks no line."""
    found = found_of((Reader.ENVIRONMENT, "A", "x: {y\n# z"), (Reader.SERVE, "host", "a.b"))
    asked = Asked("1.2.1", "h100x2", "named", "engines", "bui\nld: {")
    path = tmp_path / "profile.yaml"
    path.write_text(profile_text(made_of(found, asked), asked))

    assert {"A": "x: {y\n# z"} == load_profile(str(path)).profile.environment


def test_asked_names_that_profiles_refuse_are_an_error() -> None:
    """Nothing of the rows can mend them."""
    with pytest.raises(ValueError, match="name"):
        made_of(found_of((BUILD, "max_batch_size", 1)), Asked("1.2.1", "h100x2", "", "No Name!", "x"))


@pytest.mark.parametrize(
    ("text", "name"),
    [("Build Llama-3.1 70B", "build-llama-3.1-70b"), ("---", "migrated"), ("é", "migrated"), ("a" * 80, "a" * 63)],
)
def test_names_of_profiles_are_made_of_what_was_migrated(text: str, name: str) -> None:
    """In the letters that they may have."""
    assert name == profile_name(text)


def test_the_machine_is_the_smallest_with_the_gpu_that_the_files_name() -> None:
    """A cluster key of the builder, two ranks: h100x2; five ranks: h100x8."""
    found = found_of((BUILD, "cluster_key", "H100-SXM"), (Reader.CONVERT, "tp_size", 2))

    assert (2, 8) == (gpus_of(found, "1.2.1"), gpus_of(found_of((Reader.LAUNCHER, "world_size", 8)), "1.2.1"))
    assert "h100x2" == choose_machine(found, 2, MACHINES).name
    assert "h100x8" == choose_machine(found, 5, MACHINES).name
    assert "build.sh:1" in choose_machine(found, 2, MACHINES).why


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        ([(Reader.MPI, "np", 16)], 16),
        ([(Reader.MPI, "n", 2), (Reader.MPI, "timeout", 600), (Reader.CONTAINER, "replicas", 3)], 6),
        ([(Reader.CONTAINER, "gpus", "8"), (Reader.CONTAINER, "group_size", 2), (Reader.CONTAINER, "replicas", 2)], 32),
        ([(Reader.CONTAINER, "gpus", "all"), (Reader.CONVERT, "tp_size", 4), (Reader.CONTAINER, "replicas", 2)], 8),
        ([(Reader.CONTAINER, "gpus", 4), (Reader.CONVERT, "tp_size", 2)], 4),
        ([(PARAMETER, "gpu_device_ids", "0,1;2,3;4,5", "tensorrt_llm")], 6),
    ],
)
def test_ranks_that_are_started_and_gpus_of_pods_count(settings: list[Any], gpus: int) -> None:
    """Of every copy, so that no machine is chosen that the files already say is too small."""
    assert gpus == gpus_of(found_of(*settings), "1.2.1")


@pytest.mark.parametrize(
    ("settings", "gpus", "why"),
    [
        ([], 1, "no file names a GPU"),
        (
            [(BUILD, "cluster_key", "H100-SXM"), (Reader.CONTAINER, "gpu_product", "NVIDIA-L40S")],
            1,
            "the files name NVIDIA H100",
        ),
        ([(BUILD, "cluster_key", "H100-SXM")], 99, "no machine has 99"),
        ([(BUILD, "cluster_key", "A10G")], 1, "no file names a GPU"),
    ],
)
def test_a_machine_is_never_guessed(settings: list[Any], gpus: int, why: str) -> None:
    """Without one GPU that the files agree on, and a machine with enough of it, the operator is asked."""
    with pytest.raises(UsageError, match=why) as refused:
        choose_machine(found_of(*settings), gpus, MACHINES)

    assert "--hardware" in refused.value.hint
