"""Staging: complete or absent, resumable, locked, and never over something of the user's."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtllm_kit import __version__
from trtllm_kit.artifact import MANIFEST, read_manifest, require_intact
from trtllm_kit.errors import KitError, LockTimeout, ManifestError, OutputOccupied, StorageError, UsageError
from trtllm_kit.staging import locked, staged

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
    require_intact(tmp_path / "out", manifest)
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


def test_what_a_killed_run_had_not_finished_is_no_part_of_the_artifact(tmp_path: Path) -> None:
    """Scratch files, links and a manifest that nobody journalled are removed before the work goes on."""
    make(tmp_path / "whole")
    process = multiprocessing.get_context("fork").Process(target=make, args=(tmp_path / "out", "k1", FILES, 2))
    process.start()
    process.join()
    stage = tmp_path / ".out.partial"
    (stage / "deep" / "scratch.tmp").write_text("half")
    (stage / MANIFEST).write_text("{")
    (stage / "link").symlink_to("deep")
    (stage / "deep" / "nowhere").symlink_to("gone")
    make(tmp_path / "out")

    assert tree(tmp_path / "whole") == tree(tmp_path / "out")
    assert ["a.txt", "c.txt", "deep", MANIFEST] == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert ["b.txt"] == [path.name for path in (tmp_path / "out" / "deep").iterdir()]


@pytest.mark.parametrize("torn", [b"\xc3", b'{"path": "c.txt", "by', b"\x00" * 512, b"\xff\xfe\n"])
def test_a_journal_that_ends_in_the_middle_of_a_line_is_read_up_to_there(tmp_path: Path, torn: bytes) -> None:
    """Half a line, half a letter, or the zeros that a file system leaves after a loss of power."""
    process = multiprocessing.get_context("fork").Process(target=make, args=(tmp_path / "out", "k1", FILES, 2))
    process.start()
    process.join()
    with (tmp_path / ".out.journal").open("ab") as journal:
        journal.write(torn)

    with staged(tmp_path / "out", "engine", "k1") as stage:
        assert stage is not None
        assert [True, True, False] == [stage.has(name) for name in FILES]
        stage.discard()


@pytest.mark.parametrize(("key", "version"), [("k2", __version__), ("k1", "99.0")])
def test_another_key_or_release_starts_the_stage_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, version: str
) -> None:
    """Files staged under another plan, or by another trtkit, are never mixed in."""
    process = multiprocessing.get_context("fork").Process(target=make, args=(tmp_path / "out", "k1", FILES, 2))
    process.start()
    process.join()

    monkeypatch.setattr("trtllm_kit.staging.__version__", version)
    with staged(tmp_path / "out", "engine", key) as stage:
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


def test_a_symbolic_link_is_followed_and_kept(tmp_path: Path) -> None:
    """The artifact is made, and made again, where the link leads; the link stays a link."""
    (tmp_path / "big").mkdir()
    (tmp_path / "out").symlink_to("big/real")
    for key in ("k1", "k2"):
        make(tmp_path / "out", key=key)

    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "big" / "real" / MANIFEST).is_file()
    assert ["real"] == [path.name for path in (tmp_path / "big").iterdir()]
    assert ["big", "out"] == sorted(path.name for path in tmp_path.iterdir())


def test_the_current_folder_is_an_output_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``.`` has a name, that of the folder it is; what is in it is the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(OutputOccupied, match="was not made by trtkit"), staged(Path(), "engine", "k1"):
        pass


def test_the_root_folder_is_no_output() -> None:
    """It has no name and no sibling."""
    with pytest.raises(UsageError), staged(Path("/"), "engine", "k1"):
        pass


def test_a_loop_of_links_is_an_error_of_three_lines(tmp_path: Path) -> None:
    """Links that lead to each other lead nowhere."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(KitError) as caught, staged(tmp_path / "a" / "out", "engine", "k1"):
        pass
    assert 3 == len(caught.value.lines())


def test_an_artifact_of_another_release_of_the_kit_is_not_replaced(tmp_path: Path) -> None:
    """What cannot be read is not ours to throw away, and the message says to move it."""
    make(tmp_path / "out")
    (tmp_path / "out" / MANIFEST).write_text('{"schema_version": 2}')

    with pytest.raises(OutputOccupied, match="cannot read"), staged(tmp_path / "out", "engine", "k1"):
        pass


def test_an_artifact_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    """An engine never goes where a checkpoint is."""
    make(tmp_path / "out")

    with (
        pytest.raises(OutputOccupied, match="not a place for the checkpoint"),
        staged(tmp_path / "out", "checkpoint", "k"),
    ):
        pass


def test_work_cut_within_publish_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between the manifest and the rename, the next run has nothing to write again."""

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "out")

    with staged(tmp_path / "out", "engine", "k1") as stage:
        assert stage is not None
        assert [True, True, True] == [stage.has(name) for name in FILES]
        stage.publish(inputs={"plan": "p"}, facts={"n": 3})
    make(tmp_path / "whole")
    assert tree(tmp_path / "whole") == tree(tmp_path / "out")


@pytest.mark.parametrize("left", [".out.old", ".out.partial", ".out.journal"])
def test_what_a_killed_run_left_beside_a_finished_artifact_is_removed(tmp_path: Path, left: str) -> None:
    """A copy of 400 GB does not stay behind because the process died one system call too early."""
    make(tmp_path / "out")
    if left == ".out.journal":
        (tmp_path / left).write_text("x")
    else:
        (tmp_path / left).mkdir()
    make(tmp_path / "out")

    assert ["out"] == [path.name for path in tmp_path.iterdir()]


def test_everything_is_on_disk_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file, each folder, the journal and the manifest are synced first; the parent folder after it."""
    events: list[str] = []
    sync, rename = os.fsync, Path.rename

    def noted_sync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        events.append("RENAME")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    make(tmp_path / "out")

    before = events[: events.index("RENAME")]
    assert {"a.txt", "b.txt", "c.txt", "deep", ".out.partial", ".out.journal", MANIFEST} == set(before)
    assert before.index(MANIFEST) < before.index(".out.partial")
    assert [tmp_path.name] == events[events.index("RENAME") + 1 :]


def hold_alone(out: Path, seconds: float) -> None:
    """Take the lock again and again; exit 1 when another process is inside at the same time."""
    probe = out.with_name("inside")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with staged(out, "engine", str(os.getpid()), lock_seconds=20) as stage:
            assert stage is not None
            try:
                os.close(os.open(probe, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                os._exit(1)
            probe.unlink()
            stage.discard()


def test_the_lock_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    """Six processes that lock and unlock without pause never meet, although the lock file comes and goes."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=hold_alone, args=(tmp_path / "out", 1.5)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [0] * 6 == [process.exitcode for process in processes]


def test_a_place_that_takes_no_files_is_not_called_busy(tmp_path: Path) -> None:
    """Where nothing can be created the system's own reason is given, at once."""
    with pytest.raises(StorageError), staged(Path("/proc/trtkit"), "engine", "k1"):
        pass


def test_a_swap_that_fails_keeps_the_finished_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When only the last rename is refused, hours of work are still there for the next run."""

    def refused(self: Path, target: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refused)
        with pytest.raises(StorageError):
            make(tmp_path / "out")

    with staged(tmp_path / "out", "engine", "k1") as stage:
        assert stage is not None
        assert stage.resumed
        stage.discard()


def test_a_disk_that_is_full_from_the_start_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failing to open the stage leaves neither folder nor journal."""

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("trtllm_kit.staging._write_synced", full)
    with pytest.raises(StorageError), staged(tmp_path / "out", "engine", "k1"):
        pass
    assert [] == list(tmp_path.iterdir())


def test_a_full_disk_that_names_no_file_is_told_with_the_output(tmp_path: Path) -> None:
    """A write that fails knows no path; the message names the folder that was to be made."""
    with pytest.raises(StorageError) as caught, staged(tmp_path / "out", "engine", "k1"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert f"writing the engine: {tmp_path / 'out'}" == caught.value.what


def test_a_mount_point_is_refused_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be renamed over it, and the message says what to do instead."""
    monkeypatch.setattr(Path, "is_mount", lambda self: self.name == "out")
    (tmp_path / "out").mkdir()

    with pytest.raises(OutputOccupied, match="mount point"), staged(tmp_path / "out", "engine", "k1"):
        pass
    assert [] == list((tmp_path / "out").iterdir())


def test_a_lock_that_is_not_free_tells_who_holds_it(tmp_path: Path) -> None:
    """The process and since when; the file goes with the lock and is part of no artifact."""
    with (
        locked(tmp_path / "out", 0),
        pytest.raises(LockTimeout) as caught,
        staged(tmp_path / "out", "engine", "k1", lock_seconds=0.1),
    ):
        pass
    make(tmp_path / "out")

    assert f"process {os.getpid()} (since 2" in caught.value.why
    assert "not free after 0.1 s" in caught.value.why
    assert ["out"] == [path.name for path in tmp_path.iterdir()]
