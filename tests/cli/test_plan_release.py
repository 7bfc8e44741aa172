"""``trtkit plan --trtllm-version``: the same profile, asked of another release."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import config_folder, trtkit

PROFILE = "h200x1-llama3.1-8b-fp8"


def test_the_command_line_takes_the_place_of_the_profile(tmp_path: Path) -> None:
    """The plan says where its release comes from, and is that of a profile which names it."""
    model = config_folder(tmp_path, "llama-3.1-8b")
    (tmp_path / "own.yaml").write_text(f"base: {PROFILE}\nname: {PROFILE}\ntrtllm_version: 1.1.0\n")
    asked = trtkit("plan", model, "-p", PROFILE, "--trtllm-version", "1.1", "--json").json
    named = trtkit("plan", model, "-p", tmp_path / "own.yaml", "--json").json
    assert ("1.1.0", "profile") == (asked["release"]["value"], asked["release"]["source"])
    assert named["digest"] == asked["digest"]
    assert "1.2.1" == trtkit("plan", model, "-p", PROFILE, "--json").json["release"]["value"]


def test_no_release_is_a_usage_error(tmp_path: Path) -> None:
    """With the known ones."""
    ran = trtkit("plan", config_folder(tmp_path, "llama-3.1-8b"), "-p", PROFILE, "--trtllm-version", "0.1")
    assert 2 == ran.code
    assert "is not a release trtkit knows" in ran.err
