"""What a checkpoint depends on: the model, the formats, the calibration, and nothing else of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.checkpoint.plan_file import conversion_text, plan_text
from trtllm_kit.plan.conversion import ConversionRecord, conversion_of, differences
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan

FP8 = {"quantization.weights": "fp8"}


def record_of(changes: dict[str, Any] | None = None) -> ConversionRecord:
    """Return the conversion of an 8B under a profile with these keys changed."""
    return conversion_of(make_plan(llama_8b(), profile(changes or {}), hardware()))


def with_text(sha256: str | None, path: str = "mine.txt") -> Plan:
    """Plan an FP8 8B whose calibration text has that hash."""
    loaded = profile(FP8 | {"calibration.text": path})
    return make_plan(llama_8b(), replace(loaded, calibration_sha256=sha256), hardware())


def test_a_calibration_text_counts_by_its_content_and_not_by_its_place() -> None:
    """A text that was moved is no drift; one that was edited, or cannot be read any more, is."""
    made = conversion_of(with_text("a" * 64))
    assert made == conversion_of(with_text("a" * 64, "elsewhere/mine.txt"))
    assert made != conversion_of(with_text("b" * 64))
    assert made != conversion_of(with_text(None))
    assert made.calibration is not None
    assert f"sha256 {'a' * 64}" == made.calibration.text
    assert "elsewhere/mine.txt" == with_text("a" * 64, "elsewhere/mine.txt").calibration.text


def test_a_stored_plan_names_no_place_and_has_the_digest_of_its_original() -> None:
    """Two machines with the text in two places write one plan, and read one conversion out of it."""
    here, there = with_text("a" * 64, "/home/ann/mine.txt"), with_text("a" * 64, "/srv/texts/mine.txt")
    assert plan_text(here) == plan_text(there)
    assert "ann" not in plan_text(here)
    stored = Plan.model_validate_json(plan_text(here))
    assert here.digest == stored.digest == there.digest
    assert conversion_of(here) == conversion_of(stored)


@pytest.mark.parametrize(
    "changes",
    [
        {"limits.max_batch_size": 8},
        {"quantization.weights": "bf16"},
        {"quantization.exclude": ("*.o_proj",)},
        {"calibration.samples": 99},
        {"trtllm_version": "1.1.0"},
        {"serve.http_port": 9000},
    ],
)
def test_a_checkpoint_does_not_depend_on_limits_releases_or_who_asked(changes: dict[str, Any]) -> None:
    """A 16-bit checkpoint is the same for all of them; calibration is not even run, and nothing can be excluded."""
    assert record_of() == record_of(changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"quantization.kv_cache": "fp8"}, "quantization.kv_cache (was bf16, now fp8)"),
        ({"calibration.samples": 99}, "calibration.samples (was 16, now 99)"),
        ({"quantization.exclude": ("*.o_proj",)}, "quantization.exclude (was ['lm_head'], now ['*.o_proj'])"),
    ],
)
def test_a_quantised_checkpoint_depends_on_formats_and_calibration(changes: dict[str, Any], named: str) -> None:
    """What changes the bytes changes the digest, and is named with both values."""
    before, now = record_of(FP8), record_of(FP8 | changes)
    assert before.digest != now.digest
    assert (named,) == differences(before, now)
    assert () == differences(before, before)


def test_a_conversion_that_gains_a_calibration_says_so() -> None:
    """A section that one of the two does not have is named whole."""
    found = differences(record_of(), record_of(FP8))
    assert "calibration" == found[0]
    assert "quantization.weights (was bf16, now fp8)" in found[1]


CHANGES = st.fixed_dictionaries(
    {
        "quantization.weights": st.sampled_from(["bf16", "fp8"]),
        "quantization.kv_cache": st.sampled_from(["bf16", "fp8"]),
        "calibration.samples": st.sampled_from([8, 9]),
        "limits.max_batch_size": st.sampled_from([4, 8]),
        "serve.http_port": st.sampled_from([8000, 9000]),
    }
)


@given(one=CHANGES, other=CHANGES)
@settings(max_examples=40, deadline=None)
def test_records_are_equal_exactly_when_their_texts_and_digests_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Key, digest and bytes agree: what the file says is what the key is made of."""
    first, second = record_of(one), record_of(other)
    same = conversion_text(first) == conversion_text(second)
    assert same == (first.digest == second.digest)
    assert same == (() == differences(first, second))
    assert first == ConversionRecord.model_validate_json(conversion_text(first))


def calibrated_with(changes: dict[str, Any], once: tuple[str, ...] = ()) -> ConversionRecord:
    """Return the conversion of an FP8 8B with these calibration keys, some of them set for one run."""
    loaded = profile(FP8 | {f"calibration.{key}": value for key, value in changes.items()})
    found = "a" * 64 if "text" in changes else None
    return conversion_of(make_plan(llama_8b(), replace(loaded, calibration_sha256=found, for_one_run=once), hardware()))


def test_what_was_set_for_one_run_is_no_drift_and_all_else_is() -> None:
    """A profile need not repeat the options of convert; of what they did not set it is still held to its word."""
    once = calibrated_with({"samples": 3, "text": "mine.jsonl", "field": "note"}, ("field", "samples", "text"))
    assert () == differences(once, record_of(FP8))
    assert once.digest != record_of(FP8).digest
    longer = calibrated_with({"tokens_per_sample": 99})
    assert ("calibration.tokens_per_sample (was 256, now 99)",) == differences(once, longer)
    asked = calibrated_with({"samples": 3})
    assert ("calibration.samples (was 3, now 16)",) == differences(asked, record_of(FP8))


def test_records_and_plain_text_of_one_content_are_two_calibrations() -> None:
    """The name of the file decides which pieces are run; its place still does not."""
    plain, records = calibrated_with({"text": "mine.txt"}), calibrated_with({"text": "mine.jsonl"})
    assert ("calibration.jsonl (was False, now True)",) == differences(plain, records)
    assert records == calibrated_with({"text": "elsewhere/other.jsonl"})
    assert records != calibrated_with({"text": "mine.jsonl", "field": "note"})
