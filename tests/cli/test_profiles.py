"""The shipped profiles and broken ones, by running the installed script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.test_golden import MODEL_OF
from tests.support.cli import config_folder, trtkit

FIVE_KINDS_AND_TWO = """\
schema_version: 1
name: wrong
hardware: h200x9
trtllm_version: "9.9"
quantization:
  weights: fp9
limits:
  max_batchsize: 8
  max_seq_len: long
kv_cache:
  free_gpu_memory_fraction: 1.5
speculation:
  kind: eagle3
  draft_tokens: 3
"""
PROBLEMS = (
    (3, "hardware", "found h200x9", "did you mean h200x1?"),
    (4, "trtllm_version", "found 9.9", "1.2.1"),
    (6, "quantization.weights", "found fp9", "did you mean fp8?"),
    (8, "limits.max_batchsize", "unknown key", "did you mean max_batch_size?"),
    (9, "limits.max_seq_len", "found long (text)", "a whole number of 1 or more"),
    (11, "kv_cache.free_gpu_memory_fraction", "found 1.5", "a number above 0 and below 1"),
    (12, "speculation.draft_checkpoint", "missing", "eagle3 needs"),
)
"""Line, key, what is wrong, and what would be right."""


@pytest.mark.parametrize("name", MODEL_OF)
def test_a_shipped_profile_is_valid_and_plans_on_its_model_class(name: str, tmp_path: Path) -> None:
    """Both verbs end with 0, and the plan is of that profile and says yes."""
    asked = trtkit("profiles", "validate", name)
    planned = trtkit("plan", config_folder(tmp_path, MODEL_OF[name]), "--profile", name, "--json")

    assert (0, f"{name}: valid ({name})\n") == (asked.code, asked.out)
    assert (0, "yes", name) == (planned.code, planned.json["verdict"], planned.json["profile"]), planned.err


def test_every_mistake_of_a_profile_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    """Unknown machine and release, a typo, a wrong word, type and range, and a draft that is missing: seven lines."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FIVE_KINDS_AND_TWO)

    asked = trtkit("profiles", "validate", wrong)
    told = asked.out.splitlines()[1:]

    assert 1 == asked.code
    assert [f"  {wrong}:{line}: {key}: {what}" for line, key, what, _ in PROBLEMS] == [
        text[: len(f"  {wrong}:{line}: {key}: {what}")]
        for text, (line, key, what, _) in zip(told, PROBLEMS, strict=True)
    ]
    assert all(right in text for text, (*_, right) in zip(told, PROBLEMS, strict=True))


def test_a_verb_that_uses_such_a_profile_tells_the_same_and_makes_nothing(tmp_path: Path) -> None:
    """As an argument it is a usage error, before the first byte."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FIVE_KINDS_AND_TWO)
    model, out = config_folder(tmp_path, "llama-3.1-8b"), tmp_path / "ckpt"

    used = trtkit("convert", model, "--profile", wrong, "--out", out)

    assert 2 == used.code
    assert all(f"{wrong}:{line}: {key}" in used.err for line, key, *_ in PROBLEMS)
    assert not out.exists()


def test_lists_of_numbers_are_shown_as_the_profile_has_them(tmp_path: Path) -> None:
    """Attention windows are a list of whole numbers, and the plan's table has them."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: h200x1-llama3.1-8b-fp8\nname: mine\nkv_cache: {max_attention_window: [4096, 16384]}\n")

    planned = trtkit("plan", config_folder(tmp_path, "llama-3.1-8b"), "--profile", mine)

    assert 0 == planned.code, planned.err
    row = next(line for line in planned.out.splitlines() if line.startswith("kv_cache.max_attention_window"))
    assert "4096, 16384" in row


def test_all_profiles_are_listed_with_their_machines() -> None:
    """The list is the folder's content, and its machines exist."""
    rows = trtkit("profiles", "list", "--json").json["profiles"]

    assert set(MODEL_OF) == {row["name"] for row in rows}
    assert all(row["hardware"] and row["summary"] for row in rows)
