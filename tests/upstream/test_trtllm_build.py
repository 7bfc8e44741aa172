"""Options of trtllm-build, compared with what each release's own pages list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.upstream import known_releases
from trtllm_kit.upstream.trtllm_build import (
    BuildFlag,
    build_fields,
    build_flag,
    build_flags,
    gone_flag,
    near_build_flag,
    speculative_mode,
    unknown_build_flags,
)

READ = ("0.18.2", "0.19.0", "0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.2.1")


def pages(shared: Path, release: str) -> dict[str, dict[str, Any]]:
    """Read what the page of a release lists: options and plugin options."""
    document = yaml.safe_load((shared / "contract" / "trtllm-build-by-release.yaml").read_text("utf-8"))
    listed = document["releases"][release]
    options: dict[str, dict[str, Any]] = {**listed["flags"], **listed["plugin_flags"]}
    return options


@pytest.mark.parametrize("release", READ)
def test_a_release_has_the_options_of_its_own_page(shared: Path, release: str) -> None:
    """No option is missing, none is added, and none is called unsure."""
    rows = {row.flag: row for row in build_flags(release)}
    assert set(pages(shared, release)) == set(rows)
    assert {"read"} == {row.certainty for row in rows.values()}


@pytest.mark.parametrize("release", READ)
def test_defaults_and_choices_are_those_of_the_page(shared: Path, release: str) -> None:
    """Every default and every closed set of values is as the page prints it."""
    for name, listed in pages(shared, release).items():
        row = build_flag(release, name)
        assert row is not None
        default = listed["default"]
        assert (None if default is False else default) == row.default, name
        chosen = ("enable", "disable") if row.takes == "switch" else row.choices
        assert tuple(listed.get("choices") or listed.get("values_named_in_help") or ()) == chosen, name


@pytest.mark.parametrize(
    ("release", "present", "absent"),
    [
        ("0.12.0", "--paged_kv_cache", "--kv_cache_type"),
        ("0.13.0", "--kv_cache_type", "--monitor_memory"),
        ("0.14.0", "--builder_force_num_profiles", "--builder_opt"),
        ("0.15.0", "--pp_reduce_scatter", "--user_buffer"),
        ("0.16.0", "--user_buffer", "--enable_xqa"),
        ("0.18.2", "--cluster_key", "--dora_plugin"),
        ("1.2.0", "--dora_plugin", "--auto_parallel"),
    ],
)
def test_options_come_and_go(release: str, present: str, absent: str) -> None:
    """The release that brings or drops an option is the one of the contract."""
    assert build_flag(release, present) is not None
    assert (absent,) == unknown_build_flags(release, (present, absent))


def test_an_early_release_is_only_near(shared: Path) -> None:
    """Releases whose own pages were not read are said to be near, in every row."""
    assert shared.is_dir()
    for release in ("0.12.0", "0.16.0", "0.17.0", "0.18.0", "1.3.0rc5"):
        assert {"near"} == {row.certainty for row in build_flags(release)}, release


@pytest.mark.parametrize(
    "release", [name for name in known_releases() if name.startswith(("1.3.0rc29", "1.4", "main"))]
)
def test_the_builder_is_gone_from_late_releases(release: str) -> None:
    """Where the backend is removed there is no option at all."""
    assert () == build_flags(release)


def test_defaults_flip_between_releases() -> None:
    """The same call builds another engine in 0.19 than in 0.18: what trtkit passes by itself."""
    flipped = ("--tokens_per_block", "--use_paged_context_fmha", "--use_fp8_context_fmha")
    assert [(64, 32), ("disable", "enable"), ("disable", "enable")] == [
        (known("0.18.2", name).default, known("0.19.0", name).default) for name in flipped
    ]
    assert (256, 2048) == (known("0.13.0", "--max_batch_size").default, known("0.14.0", "--max_batch_size").default)


def known(release: str, name: str) -> BuildFlag:
    """Return an option that must be there."""
    row = build_flag(release, name)
    assert row is not None
    return row


def test_an_option_is_found_by_its_alias() -> None:
    """Old spellings lead to the option."""
    assert "--max_seq_len" == known("1.2.1", "--max_decoder_seq_len").flag


def test_a_removed_option_says_what_takes_its_place() -> None:
    """From the first release without it on, and not before."""
    gone = gone_flag("0.15.0", "--builder_force_num_profiles")
    assert gone is not None
    assert "the variable BUILDER_FORCE_NUM_PROFILES" == gone.instead
    assert gone_flag("0.14.0", "--builder_force_num_profiles") is None
    assert gone_flag("1.2.1", "--max_batch_size") is None


def test_a_slip_of_the_finger_finds_the_option() -> None:
    """The nearest name is one that the release takes."""
    assert "--gemm_plugin" == near_build_flag("1.2.1", "--gem_plugin")
    assert near_build_flag("1.2.1", "--zzz") is None


@pytest.mark.parametrize(
    ("name", "good", "bad", "nearest"),
    [
        ("--gemm_plugin", "nvfp4", "fp16", "float16"),
        ("--context_fmha", "enable", True, "enable"),
        ("--weight_streaming", True, "enable", "true"),
        ("--max_batch_size", 8, "8", None),
        ("--max_draft_len", 4, True, None),
        ("--lora_target_modules", ("attn_q", "attn_k"), ("attn_x",), None),
        ("--speculative_decoding_mode", "medusa", "medusas", "medusa"),
    ],
)
def test_values_are_taken_or_refused(name: str, good: Any, bad: Any, nearest: str | None) -> None:
    """Each kind of option takes its own values, and names the nearest of them for another."""
    row = known("1.2.1", name)
    assert row.accepts(good)
    assert not row.accepts(bad)
    if nearest is not None:
        assert nearest == row.nearest(bad)


def test_words_of_the_command_line() -> None:
    """A flag stands alone, several words follow one option, and everything else is text."""
    assert ("--weight_streaming",) == known("1.2.1", "--weight_streaming").argv(True)
    assert () == known("1.2.1", "--weight_streaming").argv(False)
    assert ("--lora_target_modules", "attn_q", "attn_k") == known("1.2.1", "--lora_target_modules").argv(
        ("attn_q", "attn_k")
    )
    assert ("--max_batch_size", "8") == known("1.2.1", "--max_batch_size").argv(8)


@pytest.mark.parametrize("release", ["0.18.2", "0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.1"])
def test_fields_are_those_of_the_release(shared: Path, release: str) -> None:
    """BuildConfig has the fields that the release's own page shows."""
    document = yaml.safe_load((shared / "contract" / "trtllm-build-by-release.yaml").read_text("utf-8"))
    assert set(document["releases"][release]["build_config"]["fields"]) == {row.field for row in build_fields(release)}


def test_modes_have_the_numbers_of_the_contract(shared: Path) -> None:
    """An engine's config.json names a mode by its number."""
    document = yaml.safe_load((shared / "contract" / "legacy-contract.yaml").read_text("utf-8"))
    for name, number in document["speculative_decoding_mode_ints"].items():
        assert number == speculative_mode("1.2.1", name.lower())
    assert speculative_mode("0.14.0", "eagle") is None
