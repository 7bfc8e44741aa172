"""Folders that people may edit: only what differs is written, and nothing of a person's is lost unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trtllm_kit.artifact import MANIFEST
from trtllm_kit.errors import EditedFiles, StorageError
from trtllm_kit.serve.target_folder import compare, write

FIRST = {"a.yaml": "one\ntwo\n", "run.sh": "#!/bin/sh\n", "sub/b.yaml": "b\n"}
SECOND = {"a.yaml": "one\nthree\n", "run.sh": "#!/bin/sh\n", "c.yaml": "c\n"}
FACTS = {"target": "kubernetes"}


def states(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Return what writing would mean for each file."""
    return {change.path: change.state for change in compare(folder, files)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder as a first run left it."""
    write(tmp_path / "out.kubernetes", FIRST, FACTS)
    return tmp_path / "out.kubernetes"


def test_a_first_run_writes_everything(tmp_path: Path) -> None:
    """Files, their folders and the manifest are there, scripts can be run, and no lock or partial file is left."""
    made = write(tmp_path / "x/out.local", FIRST, FACTS)
    folder = tmp_path / "x/out.local"
    assert {"new"} == {change.state for change in made.changes}
    assert FIRST == {name: (folder / name).read_text() for name in FIRST}
    assert (folder / "run.sh").stat().st_mode & 0o111
    assert not (folder / "a.yaml").stat().st_mode & 0o111
    assert {"a.yaml", "run.sh", "sub", MANIFEST} == {path.name for path in folder.iterdir()}
    assert ["out.local"] == [path.name for path in folder.parent.iterdir()]


def test_a_second_run_touches_nothing(folder: Path) -> None:
    """Equal files keep their time, so no rollout is caused by a run that changes nothing."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    made = write(folder, FIRST, FACTS)
    assert made.up_to_date
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_only_what_differs_is_written(folder: Path) -> None:
    """A changed file is written, one that is made no longer goes, the same one stays as it is."""
    before = (folder / "run.sh").stat().st_mtime_ns
    made = write(folder, SECOND, FACTS)
    assert {"a.yaml": "changed", "run.sh": "same", "c.yaml": "new", "sub/b.yaml": "gone"} == {
        change.path: change.state for change in made.changes
    }
    assert before == (folder / "run.sh").stat().st_mtime_ns
    assert ("one\nthree\n", False) == ((folder / "a.yaml").read_text(), (folder / "sub/b.yaml").exists())
    (changed,) = (change for change in made.changes if change.state == "changed")
    assert ["-two", "+three"] == [line for line in changed.diff[2:] if line[0] in "+-"]


@pytest.mark.parametrize("path", ["a.yaml", "sub/b.yaml"])
def test_a_persons_change_is_not_lost(folder: Path, path: str) -> None:
    """A file that would be written or removed and was edited is refused before the first byte, and named."""
    (folder / path).write_text("mine\n")
    with pytest.raises(EditedFiles) as caught:
        write(folder, SECOND, FACTS)
    assert [path] == [problem.split(":")[0] for problem in caught.value.problems]
    assert ("mine\n", False) == ((folder / path).read_text(), (folder / "c.yaml").exists())


def test_force_gives_it_up(folder: Path) -> None:
    """Asked to, a run writes its own again."""
    (folder / "a.yaml").write_text("mine\n")
    write(folder, SECOND, FACTS, force=True)
    assert "one\nthree\n" == (folder / "a.yaml").read_text()
    assert {"same"} == set(states(folder, SECOND).values())


def test_an_edit_that_says_the_same_is_none(folder: Path) -> None:
    """A person who made the change first is not told of a conflict."""
    (folder / "a.yaml").write_text(SECOND["a.yaml"])
    write(folder, SECOND, FACTS)
    assert "one\nthree\n" == (folder / "a.yaml").read_text()


def test_a_file_that_was_removed_is_made_again(folder: Path) -> None:
    """A missing file is no change of a person's that could be lost."""
    (folder / "a.yaml").unlink()
    assert "new" == states(folder, FIRST)["a.yaml"]
    write(folder, FIRST, FACTS)
    assert FIRST["a.yaml"] == (folder / "a.yaml").read_text()


def test_files_of_a_person_stay(folder: Path) -> None:
    """What trtkit never made is neither listed nor removed."""
    (folder / "notes.txt").write_text("mine")
    made = write(folder, SECOND, FACTS)
    assert "notes.txt" not in {change.path for change in made.changes}
    assert "mine" == (folder / "notes.txt").read_text()


@pytest.mark.parametrize("manifest", [None, "not JSON", "{}"])
def test_without_a_manifest_every_file_is_a_persons(folder: Path, manifest: str | None) -> None:
    """Where nothing says what was made, a file that differs is not overwritten."""
    (folder / MANIFEST).unlink()
    if manifest is not None:
        (folder / MANIFEST).write_text(manifest)
    with pytest.raises(EditedFiles):
        write(folder, SECOND, FACTS)
    assert write(folder, FIRST, FACTS).up_to_date


def test_what_a_killed_run_left_is_finished(folder: Path) -> None:
    """A run that was killed after its first file is finished by the next: that file is as it should be already."""
    (folder / "a.yaml").write_text(SECOND["a.yaml"])
    (folder / "c.yaml").write_text(SECOND["c.yaml"])
    (folder / ".c.yaml.4711.partial").write_text(SECOND["c.yaml"][:1])
    write(folder, SECOND, FACTS)
    assert {"same"} == set(states(folder, SECOND).values())
    assert not list(folder.rglob("*.partial"))


def test_the_manifest_holds_no_clock_host_or_path(folder: Path, tmp_path: Path) -> None:
    """The same files anywhere have the same manifest."""
    write(tmp_path / "elsewhere", FIRST, FACTS)
    texts = [(place / MANIFEST).read_text() for place in (folder, tmp_path / "elsewhere")]
    assert texts[0] == texts[1]
    assert {"a.yaml", "run.sh", "sub/b.yaml"} == {entry["path"] for entry in json.loads(texts[0])["files"]}


def test_a_folder_in_the_place_of_a_file_is_said(folder: Path) -> None:
    """What cannot be compared is an error with the path, not a crash."""
    (folder / "a.yaml").unlink()
    (folder / "a.yaml").mkdir()
    with pytest.raises(StorageError) as caught:
        write(folder, SECOND, FACTS)
    assert "a.yaml" in caught.value.what
