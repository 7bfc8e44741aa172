"""``trtkit migrate yaml`` as its users run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import trtkit

OLD = "# ours\nbackend: pytorch\nuse_cuda_graph: true # fast\nkv_cache_dtype: fp8\n"
NEW = "# ours\nbackend: pytorch\ncuda_graph_config: {} # fast\nkv_cache_config:\n  dtype: fp8\n"


def document(tmp_path: Path, text: str = OLD) -> Path:
    """Write a document."""
    file = tmp_path / "extra.yaml"
    file.write_text(text)
    return file


def test_a_document_is_shown_and_left_alone(tmp_path: Path) -> None:
    """Without a place to write to, the result goes to stdout."""
    file = document(tmp_path)
    ran = trtkit("migrate", "yaml", file, "--from", "0.21", "--to", "1.2", "--json")
    assert (0, NEW, OLD) == (ran.code, ran.json["text"], file.read_text())
    assert [
        ("use_cuda_graph", 3, "cuda_graph_config", "exact"),
        ("kv_cache_dtype", 4, "kv_cache_config.dtype", "exact"),
    ] == [(row["key"], row["line"], row["to"], row["how"]) for row in ran.json["rows"]]


def test_a_document_is_changed_in_place_and_then_stays(tmp_path: Path) -> None:
    """The second run, from the new release to itself, has nothing to do; nothing else lies in the folder."""
    file = document(tmp_path)
    assert 0 == trtkit("migrate", "yaml", file, "--from", "0.21", "--to", "1.2", "--in-place").code
    assert NEW == file.read_text()
    assert 0 == trtkit("migrate", "yaml", file, "--from", "1.2", "--to", "1.2", "--check").code
    assert [file] == list(tmp_path.iterdir())


def test_check_fails_where_something_was_not_read(tmp_path: Path) -> None:
    """A call that nobody looked at may break with the release: not known is not well."""
    file = tmp_path / "run.sh"
    file.write_text('ssh host "trtllm-serve m --config a.yaml"\n')
    assert 1 == trtkit("migrate", "yaml", file, "--from", "1.2", "--to", "1.2", "--check").code
    assert 0 == trtkit("migrate", "yaml", file, "--from", "1.2", "--to", "1.2").code


def test_check_writes_nothing_and_fails_where_something_would_change(tmp_path: Path) -> None:
    """For CI."""
    file = document(tmp_path)
    assert 1 == trtkit("migrate", "yaml", file, "--from", "0.21", "--to", "1.2", "--check").code
    assert OLD == file.read_text()


def test_what_is_lost_fails_and_is_written_all_the_same(tmp_path: Path) -> None:
    """Exit 1 says that a row is to be read."""
    file = document(tmp_path, "kv_cache_config:\n  onboard_blocks: false\n  dtype: fp8\n")
    ran = trtkit(
        "migrate", "yaml", file, "--from", "1.2", "--to", "main", "--out", tmp_path / "new.yaml", "--new-defaults"
    )
    assert (1, "kv_cache_config:\n  dtype: fp8\n") == (ran.code, (tmp_path / "new.yaml").read_text())
    assert "lost" in ran.out


def test_a_key_that_neither_release_takes_stops_the_writing(tmp_path: Path) -> None:
    """It is told with its line, and the file stays."""
    file = document(tmp_path, OLD + "colour: red\n")
    ran = trtkit("migrate", "yaml", file, "--from", "0.21", "--to", "1.2", "--in-place")
    assert (1, OLD + "colour: red\n") == (ran.code, file.read_text())
    assert "extra.yaml:5" in ran.out


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    """--out makes a new file."""
    file = document(tmp_path)
    ran = trtkit("migrate", "yaml", file, "--from", "0.21", "--to", "1.2", "--out", file)
    assert 3 == ran.code
    assert "KIT-ARTIFACT-001" in ran.err


def test_a_script_and_a_command_are_moved_too(tmp_path: Path) -> None:
    """By the ending of the file, or as words."""
    script = tmp_path / "serve.sh"
    script.write_text("trtllm-serve m --config a.yaml\n")
    assert 0 == trtkit("migrate", "yaml", script, "--from", "1.2", "--to", "1.0", "--in-place").code
    assert "trtllm-serve m --extra_llm_api_options a.yaml\n" == script.read_text()
    ran = trtkit("migrate", "yaml", "--command", "trtllm-serve m --config a", "--from", "1.2", "--to", "1.0", "--json")
    assert "trtllm-serve m --extra_llm_api_options a" == ran.json["text"]


def test_what_cannot_be_asked_is_refused() -> None:
    """Releases without an LLM API, and nothing to migrate."""
    assert 2 == trtkit("migrate", "yaml", "--command", "x", "--from", "0.16", "--to", "1.2").code
    assert 2 == trtkit("migrate", "yaml", "--from", "1.0", "--to", "1.2").code


def test_a_text_that_is_no_document_is_told_with_its_line(tmp_path: Path) -> None:
    """Exit 3."""
    ran = trtkit("migrate", "yaml", document(tmp_path, "a: 1\nb: [1\n"), "--from", "1.0", "--to", "1.2")
    assert 3 == ran.code
    assert "line 3" in ran.err
    assert "KIT-MIGRATE-002" in ran.err


def test_a_document_for_engines_leads_to_the_other_verb(tmp_path: Path) -> None:
    """Its keys are another table's."""
    ran = trtkit("migrate", "yaml", document(tmp_path, "backend: tensorrt\n"), "--from", "1.0", "--to", "1.2")
    assert 3 == ran.code
    assert "trtkit migrate engine" in ran.err


@pytest.mark.parametrize("command", ["", "ls -l"])
def test_a_command_that_is_no_call_is_an_error(command: str) -> None:
    """Nothing to change would say that something was looked at."""
    ran = trtkit("migrate", "yaml", "--command", command, "--from", "1.2", "--to", "main")
    assert (3, True) == (ran.code, "--command has nothing to carry over" in ran.err), ran.err
