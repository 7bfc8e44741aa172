"""The account of a migration, and what goes with it: clients, metrics, arguments, and any input at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.migrate.engine.settings import WHERE, found_of
from trtllm_kit.migrate.engine.clients import client_rows, metric_rows
from trtllm_kit.migrate.engine.profile import Asked
from trtllm_kit.migrate.engine.report import text
from trtllm_kit.migrate.engine.rules import Rules, RuleTold
from trtllm_kit.migrate.engine.whole import Migrated, migrate
from trtllm_kit.migrate.found import Found, Reader, Setting, Unread, Where
from trtllm_kit.migrate.reading.path import found as read
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.upstream.engine_settings import meanings
from trtllm_kit.upstream.llm_api import unknown_llm_api_keys

BUILD, PARAMETER = Reader.BUILD, Reader.PARAMETER
MACHINE = "h200x8-700w"


def whole(found: Found, to: str = "1.2.1", rules: Rules | None = None) -> Migrated:
    """Migrate without a model."""
    return migrate(
        found, Asked(to, MACHINE, "of the test", "migrated", "build.sh"), load_hardware(MACHINE), rules=rules
    )


MIXED = found_of(
    (BUILD, "max_batch_size", 64),
    (BUILD, "gather_context_logits", True),
    (BUILD, "max_input_len", 1024),
    (BUILD, "gemm_plugin", "auto"),
    (PARAMETER, "kv_cache_free_gpu_mem_fraction", None, "tensorrt_llm"),
)


def test_the_counts_are_of_all_settings() -> None:
    """One exact, one lost, one approximate, two dropped."""
    assert {"exact": 1, "approximate": 1, "dropped": 2, "none": 1} == whole(MIXED).account.counts


def test_the_text_shows_what_needs_a_look_and_all_of_it_when_asked() -> None:
    """Exact and dropped rows only with --verbose."""
    account = whole(MIXED).account
    short, long = text(account), text(account, verbose=True)

    assert "5 settings: 1 exact, 1 approximate, 2 dropped, 1 without equivalent; 0 places not read" in short
    assert ("context_logits as an output" in short, "gemm_plugin" in short) == (True, False)
    assert all(one.name in long for one in MIXED.settings)
    assert "build.sh:2" in short


def test_the_markdown_has_each_setting_on_a_line_of_its_own() -> None:
    """Under the way it goes, with file and line; tables keep their columns whatever stands in a value."""
    found = found_of((BUILD, "checkpoint_dir", "a|b\n`c`"), (BUILD, "max_batch_size", 64), (BUILD, "weird|name", "<x>"))
    report = whole(found).files["report.md"]
    tables = [line for line in report.splitlines() if line.startswith("|")]

    assert all(sum(f"build.sh:{line} |" in one for one in tables) == 1 for line in (1, 2, 3))
    assert "a\\|b \\`c\\`" in report
    assert "## Clients" in report
    assert "## Metrics" in report


def test_long_places_that_were_not_read_are_cut_in_the_report_alone() -> None:
    """report.json has the whole text."""
    made = whole(Found((), (Unread(WHERE, "x" * 4000, "why"),)))

    assert ["..." in page and "x" * 200 not in page for page in (made.files["report.md"], text(made.account))] == [
        True
    ] * 2
    assert "x" * 4000 in made.files["report.json"]


def test_no_secret_is_written_or_shown(tmp_path: Path) -> None:
    """A token, keys of restricted endpoints, and those within words that were not read; a reference to one is."""
    (tmp_path / "Dockerfile").write_text(
        "FROM nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3\n"
        "ENV HF_TOKEN=hidden-1 NGC_API_KEY=${HUB_KEY} TLLM_LOG_LEVEL=INFO\n"
        "RUN srun --api-key hidden-2 MY_TOKEN=hidden-3 trtllm-build --max_batch_size 4 --hf_token hidden-4\n"
        "CMD tritonserver --model-repository=/r --http-restricted-api=inference:admin-key=hidden-5\n"
    )
    made = whole(read(tmp_path))
    shown = [*made.files.values(), text(made.account, verbose=True)]

    assert {"HF_TOKEN", "max_batch_size", "http_restricted_api"} <= {row.setting.name for row in made.account.rows}
    assert [False] * len(shown) == ["hidden-" in page for page in shown]
    assert "INFO" in made.files["report.md"]


def test_nothing_that_was_read_makes_a_line_of_its_own() -> None:
    """File names, values and words that were not read stay on their line, and act on no terminal."""
    place = Where("b\nOK\x1b[2J.sh", 1)
    found = Found(
        (Setting(BUILD, "gather_context_logits", "yes\nOK", place), Setting(BUILD, "a\nOK", "b", place)),
        (Unread(place, "x\nOK", "y\nOK"),),
    )
    made = whole(found, rules=Rules("", (RuleTold(1, "a\nOK", "none", ("b\nOK",)),)))
    shown = text(made.account, verbose=True)

    assert [] == [line for line in shown.splitlines() if line.startswith("OK")]
    assert "\x1b" not in shown
    assert [] == [line for line in made.files["report.md"].splitlines() if line.startswith("OK")]


def test_the_next_steps_can_be_run_from_where_the_migration_was() -> None:
    """They name the folder that was written and the model, quoted as a shell wants it."""
    asked = Asked("1.2.1", MACHINE, "of the test", "migrated", "build.sh", "out of engines")
    made = migrate(MIXED, asked, load_hardware(MACHINE))
    account = replace(made.account, model="my model")

    assert "trtkit plan 'my model' --profile 'out of engines/profile.yaml'" in account.next_steps
    assert "trtkit plan MODEL --profile profile.yaml" in whole(MIXED).account.next_steps


def test_the_json_is_the_account() -> None:
    """What was found, its rows, the profile, and what to do next."""
    made = whole(MIXED)
    document = json.loads(made.files["report.json"])

    assert made.account.document() == document
    assert ("no", 5, "1.2.1") == (document["verdict"], document["settings"], document["release_to"])
    assert made.account.files == tuple(made.files)


@pytest.mark.parametrize(
    ("found", "rules", "whole_of_it"),
    [
        (found_of((BUILD, "max_batch_size", 64)), "same", True),
        (found_of((BUILD, "max_batch_size", 64)), "none", False),
        (found_of((BUILD, "weight_sparsity", True)), "same", False),
        (Found((), (Unread(WHERE, "--x", "why"),)), "same", False),
    ],
)
def test_the_verdict_is_yes_only_where_nothing_is_lost_or_unread(found: Found, rules: Any, whole_of_it: bool) -> None:
    """A rule without an equivalent counts as much as a setting."""
    made = whole(found, rules=Rules("", (RuleTold(1, "A", rules, ()),)))

    assert whole_of_it is made.account.is_whole


def test_what_profiles_have_no_key_of_stands_in_the_arguments() -> None:
    """Nested, and beside what the profile says."""
    made = whole(
        found_of((BUILD, "max_lora_rank", 8), (PARAMETER, "max_tokens_in_paged_kv_cache", "4000", "tensorrt_llm"))
    )
    arguments = yaml.safe_load(made.files["llm_args.yaml"])

    assert (8, 4000, 0.9) == (
        arguments["lora_config"]["max_lora_rank"], arguments["kv_cache_config"]["max_tokens"],
        arguments["kv_cache_config"]["free_gpu_memory_fraction"],
    )  # fmt: skip


@pytest.mark.parametrize("to", ["1.0.0", "1.2.1", "main"])
def test_the_arguments_have_no_key_that_the_release_lacks(to: str) -> None:
    """Whatever was set: limits stand where that release looks for them."""
    settings_ = [
        (PARAMETER, name, "1", "tensorrt_llm") for row in meanings() if "parameter" in row.reader for name in row.names
    ]
    arguments = yaml.safe_load(whole(found_of(*settings_, (BUILD, "max_seq_len", 4096)), to).files["llm_args.yaml"])

    assert () == unknown_llm_api_keys(to, arguments)
    assert 4096 == (arguments.get("build_config") or arguments)["max_seq_len"]


def test_clients_learn_what_their_release_lacks() -> None:
    """lora_id came after 1.2.1; text_input stays; bad_words has no place."""
    late = {row.old: row for row in client_rows("main") if row.side == "input"}
    early = {row.old: row for row in client_rows("1.2.1") if row.side == "input"}

    assert ("lora_id", "", "none") == (late["lora_task_id"].new, early["lora_task_id"].new, early["lora_task_id"].how)
    assert ("text_input", "sampling_param_max_tokens", "") == (
        early["text_input"].new,
        early["max_tokens"].new,
        early["bad_words"].new,
    )


def test_metrics_of_the_engine_keep_their_names() -> None:
    """Those of time that a decoupled model cannot tell do not."""
    rows = {row.old: row.how for row in metric_rows()}

    assert ("exact", "none") == (rows["nv_trt_llm_request_metrics"], rows["nv_inference_request_duration_us"])


NAMES = sorted(
    {name.rstrip("*") for row in meanings() for name in row.names} | {"no_such_setting", "", "build_config.x"}
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 1 << 40),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["enable", "disable", "auto", "fp8", "64"]),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(["secretKeyRef", "a"]), st.just({"name": "n", "key": "k"}), max_size=1),
)
SETTINGS = st.builds(
    Setting,
    st.sampled_from(list(Reader)),
    st.sampled_from(NAMES),
    VALUES,
    st.just(WHERE),
    st.sampled_from(["", "tensorrt_llm", "ensemble", "other"]),
)


@given(
    found=st.builds(Found, st.lists(SETTINGS, max_size=12).map(tuple)), to=st.sampled_from(["1.0.0", "1.2.1", "main"])
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_anything_that_was_found_migrates_with_one_row_each(found: Found, to: str) -> None:
    """Whatever names and values: a profile that profiles take, a row for each setting, and texts that are YAML."""
    made = whole(found, to)

    assert list(found.settings) == [row.setting for row in made.account.rows]
    assert made.account.profile == yaml.safe_load(made.files["profile.yaml"])
    assert [] == [row for row in made.account.rows if row.how == "dropped" and (row.lost or row.key or not row.note)]
    assert [] == [row for row in made.account.rows if row.how == "none" and not (row.lost and row.instead)]
    assert () == unknown_llm_api_keys(to, yaml.safe_load(made.files["llm_args.yaml"]))
    assert text(made.account, verbose=True)
