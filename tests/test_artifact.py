"""Artifacts: what a manifest says, and what it never says."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.test_staging import make
from trtllm_kit.artifact import MANIFEST, append_log, foreign_files, read_manifest, require_intact
from trtllm_kit.errors import ManifestError

WHOLE = {"kind": "engine", "kit_version": "1", "key": "k", "inputs": {}, "facts": {}}


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"schema_version": 9}'])
def test_a_broken_manifest_is_an_error_not_a_crash(tmp_path: Path, text: str) -> None:
    """Whatever the file holds, reading it ends in ManifestError."""
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(ManifestError):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not a manifest of schema 1: Invalid JSON: EOF while parsing an object at line 1 column 1"),
        ('{"kind": "engine"}', "it is not a manifest of schema 1: kit_version: Field required"),
        (json.dumps(WHOLE | {"files": [{"path": "a", "bytes": 1}]}),
         "it is not a manifest of schema 1: files.0.sha256: Field required"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_manifest_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    """The first fault with its place, and no page of the library that found it."""
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(ManifestError) as refused:
        read_manifest(tmp_path)
    assert said == refused.value.why


def test_the_manifest_of_another_kind_is_refused(tmp_path: Path) -> None:
    """An engine is not a checkpoint."""
    make(tmp_path / "out")

    with pytest.raises(ManifestError, match="not the checkpoint"):
        read_manifest(tmp_path / "out", "checkpoint")


@pytest.mark.parametrize(
    ("text", "seconds", "damage"),
    [
        ("alpha", 0, ""),
        ("alpha", 60, ""),
        ("alphA", -60, ""),
        ("alphA", 60, "written to after it was finished: SHA-256 begins with 8d643ce4e296"),
        ("alph", -60, "4 bytes on disk, 5 bytes in the manifest"),
        (None, 0, "missing, 5 bytes in the manifest"),
    ],
)
def test_a_file_is_hashed_only_when_it_is_newer_than_the_manifest(
    tmp_path: Path, text: str | None, seconds: int, damage: str
) -> None:
    """Sizes always count; the time says whether the contents must be read, and an edit that hides it is not seen."""
    make(tmp_path)
    path, manifest = tmp_path / "a.txt", read_manifest(tmp_path)
    moment = (tmp_path / MANIFEST).stat().st_mtime_ns + seconds * 10**9
    path.unlink()
    if text is not None:
        path.write_text(text)
        os.utime(path, ns=(moment, moment))
    with pytest.raises(ManifestError) if damage else nullcontext() as caught:
        require_intact(tmp_path, manifest)
    assert damage in (caught.value.why if caught else "")


def test_foreign_files_are_those_that_the_manifest_does_not_name(tmp_path: Path) -> None:
    """Links are made anew and Python's caches come by themselves; what else is there is somebody's."""
    make(tmp_path / "out")
    assert [] == foreign_files(tmp_path / "out", read_manifest(tmp_path / "out"))
    for name in ("notes.txt", "deep/more.txt", "deep/__pycache__/b.pyc"):
        path = tmp_path / "out" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (tmp_path / "out" / "link").symlink_to("notes.txt")
    assert ["deep/more.txt", "notes.txt"] == foreign_files(tmp_path / "out", read_manifest(tmp_path / "out"))


def test_clock_and_host_go_to_the_log_beside_the_artifact(tmp_path: Path) -> None:
    """The log has them; the manifest does not."""
    make(tmp_path / "out")
    append_log(tmp_path / "out", {"verb": "build"})

    record = json.loads((tmp_path / "out.log.jsonl").read_text().splitlines()[-1])
    assert {"time", "host", "argv", "verb"} == set(record)
    manifest = (tmp_path / "out" / MANIFEST).read_text()
    assert record["host"] not in manifest
    assert str(tmp_path) not in manifest
