"""``trtkit lint`` as its users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lint.five_models import write_five_models
from tests.support.cli import config_folder, trtkit

BAD = {"tensorrt_llm": {"max_batch_size: 64": "max_batch_size: ${triton_max_batch_size}"}}


def test_a_clean_repository_ends_with_zero(tmp_path: Path) -> None:
    """The kind, the release and who named it, and the counts."""
    ran = trtkit("lint", write_five_models(tmp_path / "r"), "--trtllm-version", "1.2")
    assert (0, "") == (ran.code, ran.err)
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"{tmp_path}/r: Triton repository (models ensemble, postprocessing, preprocessing")
    assert "release 1.2.1, named by --trtllm-version" == lines[1]
    assert "0 errors, 0 warnings, 1 remark" == lines[-1]


def test_an_error_ends_with_one_and_says_where(tmp_path: Path) -> None:
    """Severity, rule, file and line; the numbers; one thing to try."""
    ran = trtkit("lint", write_five_models(tmp_path / "r", BAD))
    assert 1 == ran.code
    assert "ERROR PF21 at tensorrt_llm/config.pbtxt" in ran.out
    assert "  compared: tensorrt_llm: ${triton_max_batch_size}" in ran.out
    assert "  try: fill ${triton_max_batch_size}" in ran.out


def test_json_has_the_same_findings_with_file_and_line(tmp_path: Path) -> None:
    """One object, with a verdict."""
    found = trtkit("lint", write_five_models(tmp_path / "r", BAD), "--json").json
    assert ("no", "Triton repository") == (found["verdict"], found["kind"])
    errors = [one for one in found["findings"] if one["severity"] == "error"]
    assert [("PF21", "tensorrt_llm/config.pbtxt")] == [(one["rule"], one["file"]) for one in errors]
    assert {"rule", "severity", "message", "compared", "suggestion", "file", "line"} == set(errors[0])


def test_warnings_end_with_one_where_it_is_strict(tmp_path: Path) -> None:
    """The same repository, with and without --strict."""
    path = tmp_path / "a.yaml"
    path.write_text("kv_cache_config: {enable_block_reuse: true}\nkv_cache_config: {}\n")
    assert [0, 1] == [trtkit("lint", path).code, trtkit("lint", path, "--strict").code]


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("--trtllm-version", "0.1"), 2, "trtllm_version '0.1' is not a release trtkit knows"),
        (("-p", "nobodys-profile"), 2, "nobodys-profile"),
        (("--mount", "/models"), 2, "--mount /models is not understood"),
    ],
)
def test_a_wrong_release_or_profile_is_a_usage_error(
    arguments: tuple[str, ...], code: int, what: str, tmp_path: Path
) -> None:
    """Before anything is read."""
    (tmp_path / "a.yaml").write_text("model: x\n")
    ran = trtkit("lint", tmp_path / "a.yaml", *arguments)
    assert code == ran.code
    assert what in ran.err


def test_what_is_nothing_of_the_kind_ends_with_three(tmp_path: Path) -> None:
    """With a list of what was looked for; so does YAML that cannot be read, with its line."""
    ran = trtkit("lint", tmp_path)
    assert (3, "") == (ran.code, ran.out)
    assert "KIT-LINT-001" in ran.err
    assert "*/config.pbtxt (a Triton repository)" in ran.err
    (tmp_path / "a.yaml").write_text("a: 1\nb: [1,\n")
    broken = trtkit("lint", tmp_path / "a.yaml", "--json")
    assert (3, "KIT-LINT-001") == (broken.code, broken.json["error"]["code"])
    assert "line 3" in broken.json["error"]["why"]


def test_a_model_with_a_profile_is_told_what_its_plan_says(tmp_path: Path) -> None:
    """The findings of plan, with the same verdict; without a profile no plan is made."""
    model = config_folder(tmp_path, "llama-3.1-405b")
    planned = trtkit("plan", model, "-p", "h200x1-llama3.1-8b-fp8", "--json").json
    linted = trtkit("lint", model, "-p", "h200x1-llama3.1-8b-fp8", "--json")
    assert (1, planned["verdict"]) == (linted.code, linted.json["verdict"])
    assert [one["rule"] for one in planned["findings"]] == [one["rule"] for one in linted.json["findings"]]
    assert 0 == trtkit("lint", model).code


def test_the_release_of_the_command_line_wins_over_the_profile(tmp_path: Path) -> None:
    """The plan is made for it: 0.21.0 has no PyTorch backend, and another toolchain."""
    model = config_folder(tmp_path, "llama-3.1-8b")
    arguments = ("lint", model, "-p", "h200x1-llama3.1-8b-fp8", "--json")
    own, other = trtkit(*arguments).json, trtkit(*arguments, "--trtllm-version", "0.21.0").json
    assert ("1.2.1", "profile") == (own["release"], own["release_from"])
    assert ("0.21.0", "--trtllm-version") == (other["release"], other["release_from"])
    assert own["findings"] != other["findings"]


def test_a_missing_shard_of_a_model_is_told(tmp_path: Path) -> None:
    """By the index, without reading a weight."""
    model = config_folder(tmp_path, "llama-3.1-8b")
    index = {"metadata": {"total_size": 9}, "weight_map": {"model.embed_tokens.weight": "a.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    ran = trtkit("lint", model)
    assert 1 == ran.code
    assert "ERROR PF9 at model.safetensors.index.json" in ran.out
    assert "1 of 1 missing: a.safetensors" in ran.out
    (model / "model.safetensors.index.json").write_text("{")
    assert (3, True) == ((broken := trtkit("lint", model)).code, "KIT-CHECKPOINT-002" in broken.err)


def test_names_of_folders_cannot_colour_a_terminal(tmp_path: Path) -> None:
    """Whatever a model's folder is called, its place is shown escaped."""
    folder = tmp_path / "r" / "a\x1b[31mb"
    folder.mkdir(parents=True)
    (folder / "config.pbtxt").write_text("name {\n")
    ran = trtkit("lint", tmp_path / "r")
    assert (1, False) == (ran.code, "\x1b" in ran.out)
    assert "\\x1b[31mb/config.pbtxt:2" in ran.out
