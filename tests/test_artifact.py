"""Artifacts: complete or absent, resumable, and never over something of the user's."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtllm_kit.artifact import MANIFEST, append_log, check_sizes, read_manifest, staged
from trtllm_kit.errors import LockTimeout, ManifestError, OutputOccupied, StorageError

FILES = {"a.txt": "alpha", "deep/b.txt": "beta", "c.txt": "gamma"}


def make(out: Path, key: str = "k1", files: dict[str, str] = FILES, stop_after: int | None = None) -> None:
    """Write an artifact as a stage does; stop dead (SIGKILL) after some files when asked."""
    with staged(out, "engine", key) as stage:
        if stage is None:
            return
        for number, (name, text) in enumerate(files.items()):
            if stop_after == number:
                os.kill(os.getpid(), signal.SIGKILL)
            if not stage.has(name):
                stage.write_text(name, text)
        if stop_after == len(files):
            os.kill(os.getpid(), signal.SIGKILL)
        stage.publish(inputs={"plan": "p"}, facts={"n": 3})


def fail_halfway(out: Path) -> None:
    """Write one file of another artifact and fail."""
    with staged(out, "engine", "k2") as stage:
        assert stage is not None
        stage.write_text("new.txt", "x")
        raise ManifestError("boom", why="because", hint="nothing")


def tree(folder: Path) -> dict[str, bytes]:
    """Read a folder whole."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_published_artifact_holds_its_files_and_a_manifest_that_matches(tmp_path: Path) -> None:
    """Sizes and hashes are of what is on disk, and nothing but the output is left beside it."""
    make(tmp_path / "out")

    manifest = read_manifest(tmp_path / "out", "engine")
    check_sizes(tmp_path / "out", manifest)
    assert ["a.txt", "c.txt", "deep/b.txt"] == [entry.path for entry in manifest.files]
    assert manifest.files[0].sha256 == "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"
    assert ["out"] == [path.name for path in tmp_path.iterdir()]


def test_the_same_key_does_nothing_the_second_time(tmp_path: Path) -> None:
    """A complete artifact with the same key is left alone, byte and time."""
    make(tmp_path / "out")
    before = (tmp_path / "out" / MANIFEST).stat().st_mtime_ns

    with staged(tmp_path / "out", "engine", "k1") as stage:
        assert stage is None
    assert before == (tmp_path / "out" / MANIFEST).stat().st_mtime_ns


def test_another_key_replaces_the_artifact_whole(tmp_path: Path) -> None:
    """No file of the older artifact survives."""
    make(tmp_path / "out")
    make(tmp_path / "out", key="k2", files={"only.txt": "x"})

    assert {"only.txt", MANIFEST} == set(tree(tmp_path / "out"))


@given(stop=st.integers(0, 3), again=st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_a_killed_run_goes_on_and_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, stop: int, again: int
) -> None:
    """SIGKILL at any file, twice, and the third run equals an undisturbed one."""
    base = tmp_path_factory.mktemp("kill")
    make(base / "whole")
    context = multiprocessing.get_context("fork")
    for moment in (stop, again):
        process = context.Process(target=make, args=(base / "cut", "k1", FILES, moment))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not (base / "cut").exists()
    make(base / "cut")

    assert tree(base / "whole") == tree(base / "cut")
    assert not [path for path in base.iterdir() if "cut" in path.name and path.name != "cut"]


def test_finished_files_of_a_killed_run_are_not_written_again(tmp_path: Path) -> None:
    """The journal remembers what was done."""
    process = multiprocessing.get_context("fork").Process(target=make, args=(tmp_path / "out", "k1", FILES, 2))
    process.start()
    process.join()

    with staged(tmp_path / "out", "engine", "k1") as stage:
        assert stage is not None
        assert stage.resumed
        assert [True, True, False] == [stage.has(name) for name in FILES]
        stage.discard()


def test_another_key_starts_the_stage_afresh(tmp_path: Path) -> None:
    """Files staged under another plan are never mixed in."""
    process = multiprocessing.get_context("fork").Process(target=make, args=(tmp_path / "out", "k1", FILES, 2))
    process.start()
    process.join()

    with staged(tmp_path / "out", "engine", "k2") as stage:
        assert stage is not None
        assert not stage.has("a.txt")
        assert not (stage.path / "a.txt").exists()


def test_an_error_removes_the_stage_and_keeps_the_old_artifact(tmp_path: Path) -> None:
    """A failed run leaves what was there before, and nothing else."""
    make(tmp_path / "out")
    before = tree(tmp_path / "out")

    with pytest.raises(ManifestError):
        fail_halfway(tmp_path / "out")
    assert before == tree(tmp_path / "out")
    assert ["out"] == [path.name for path in tmp_path.iterdir()]


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    """Files without our manifest are the user's."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")

    with pytest.raises(OutputOccupied) as caught, staged(tmp_path / "out", "engine", "k1"):
        pass
    assert len(caught.value.lines()) == 3
    assert {"thesis.txt"} == set(tree(tmp_path / "out"))


def test_a_damaged_artifact_is_made_again(tmp_path: Path) -> None:
    """A file whose size no longer matches the manifest is not "up to date"."""
    make(tmp_path / "out")
    (tmp_path / "out" / "a.txt").write_text("alpha and more")
    make(tmp_path / "out")

    assert tree(tmp_path / "out")["a.txt"] == b"alpha"


def test_two_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    """The second run waits for the lock and then refuses."""
    with (
        staged(tmp_path / "out", "engine", "k1") as stage,
        pytest.raises(LockTimeout),
        staged(tmp_path / "out", "engine", "k1", lock_seconds=0.1),
    ):
        pass
    assert stage is not None


def test_a_swap_cut_between_its_renames_is_finished(tmp_path: Path) -> None:
    """When only the moved-aside artifact is left, the next run puts it back first."""
    make(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".out.old")

    with staged(tmp_path / "out", "engine", "k1") as stage:
        assert stage is None
    assert (tmp_path / "out" / MANIFEST).is_file()


def test_a_file_system_failure_is_a_storage_error(tmp_path: Path) -> None:
    """An output below a file cannot be made, and says so in three lines."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(StorageError) as caught, staged(tmp_path / "file" / "out", "engine", "k1"):
        pass
    assert "errno" in caught.value.why


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"schema_version": 9}'])
def test_a_broken_manifest_is_an_error_not_a_crash(tmp_path: Path, text: str) -> None:
    """Whatever the file holds, reading it ends in ManifestError."""
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(ManifestError):
        read_manifest(tmp_path)


def test_the_manifest_of_another_kind_is_refused(tmp_path: Path) -> None:
    """An engine is not a checkpoint."""
    make(tmp_path / "out")

    with pytest.raises(ManifestError, match="not a checkpoint"):
        read_manifest(tmp_path / "out", "checkpoint")


def test_clock_and_host_go_to_the_log_beside_the_artifact(tmp_path: Path) -> None:
    """The log has them; the manifest does not."""
    make(tmp_path / "out")
    append_log(tmp_path / "out", {"verb": "build"})

    record = json.loads((tmp_path / "out.log.jsonl").read_text().splitlines()[-1])
    assert {"time", "host", "argv", "verb"} == set(record)
    manifest = (tmp_path / "out" / MANIFEST).read_text()
    assert record["host"] not in manifest
    assert str(tmp_path) not in manifest
