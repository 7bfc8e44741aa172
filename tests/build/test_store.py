"""The engine store: the same engine is handed out, another one never, and an edited one is made again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import MakeCheckpoint
from tests.build.test_engine import MOCK, StopsAt, plan_of, snapshot
from trtllm_kit.artifact import read_manifest
from trtllm_kit.build import engine
from trtllm_kit.build.differences import Origin
from trtllm_kit.build.driver import NO_DRIVER, VARIABLE, driver_class
from trtllm_kit.build.engine import Build, Reuse, build
from trtllm_kit.build.nearest import nearest, sentence
from trtllm_kit.build.store import MARK, Store, is_store, make_store, open_store, store_key
from trtllm_kit.errors import ManifestError, OutputOccupied, StorageError, UsageError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Progress, Silent

SILENT = Silent()


class Kept:
    """A store, and what it was asked for in vain."""

    def __init__(self, folder: Path) -> None:
        """Make it."""
        self.store = make_store(folder)
        self.missed: list[Origin] = []

    def build(self, checkpoint: Path, made: Plan, out: Path, progress: Progress = SILENT) -> Build:
        """Build with it."""
        return build(checkpoint, made, out, progress, reuse=Reuse(self.store, self.missed.append))


@pytest.fixture(name="kept")
def store_of_a_test(tmp_path: Path) -> Kept:
    """Return an empty store."""
    return Kept(tmp_path / "store")


@pytest.mark.parametrize("changes", [{}, MOCK], ids=["llm-api", "mock"])
def test_an_engine_from_the_store_is_the_one_that_a_plain_build_makes(
    make_checkpoint: MakeCheckpoint, kept: Kept, changes: dict[str, Any]
) -> None:
    """Made there, taken from there and made without it: the same bytes, manifest and links, and up to date for all."""
    made = plan_of(changes)
    checkpoint = make_checkpoint(made)
    first, second, plain = (checkpoint.parent / name for name in ("first", "second", "plain"))
    built, taken = kept.build(checkpoint, made, first), kept.build(checkpoint, made, second)
    build(checkpoint, made, plain, Silent())
    assert built.taken_from is None
    assert [taken.taken_from] == [entry.folder for entry in kept.store.entries()]
    assert 1 == len(kept.missed)
    assert snapshot(plain) == snapshot(first) == snapshot(second)
    assert Path("../checkpoint") == (second / "checkpoint").readlink()
    assert kept.build(checkpoint, made, plain).up_to_date
    assert build(checkpoint, made, second, Silent()).up_to_date


def test_the_files_of_a_taken_engine_are_those_of_the_store(make_checkpoint: MakeCheckpoint, kept: Kept) -> None:
    """A second name for a file takes no space."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    kept.build(checkpoint, made, checkpoint.parent / "out")
    (entry,) = kept.store.entries()
    assert (entry.folder / "rank0.engine").samefile(checkpoint.parent / "out" / "rank0.engine")


def test_where_no_second_name_can_be_given_the_files_are_copied(
    make_checkpoint: MakeCheckpoint, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file system gives another file of the same bytes."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    made = plan_of(MOCK)
    out = (checkpoint := make_checkpoint(made)).parent / "out"
    kept.build(checkpoint, made, out)
    (entry,) = kept.store.entries()
    assert snapshot(entry.folder) == snapshot(out)
    assert not (entry.folder / "rank0.engine").samefile(out / "rank0.engine")


def test_a_copy_of_a_file_that_was_spoilt_unseen_is_refused(
    make_checkpoint: MakeCheckpoint, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is copied is hashed, so that a bit that flipped on the disk of the store goes no further."""
    made = plan_of(MOCK)
    out = (checkpoint := make_checkpoint(made)).parent / "out"
    kept.build(checkpoint, made, checkpoint.parent / "first")
    (entry,) = kept.store.entries()
    flip(entry.folder / "rank1.engine")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ManifestError, match=r"rank1.engine does not match its manifest"):
        kept.build(checkpoint, made, out)
    assert not out.exists()


def flip(path: Path) -> None:
    """Flip a bit and put the time back, as a failing disk does."""
    found = path.stat()
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


OTHERS: dict[str, tuple[str, Any, str, str]] = {
    "release": ("trtllm_version", "1.2.0", "1.2.0", "1.2.1"),
    "limits.max_seq_len": ("limits.max_seq_len", 2048, "2048", "8192"),
    "parallelism.tensor": ("parallelism.tensor", 4, "4", "2"),
    "runtime.tokens_per_block": ("kv_cache.tokens_per_block", 64, "64", "32"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_another_engine_is_never_taken_and_the_field_is_named(
    make_checkpoint: MakeCheckpoint, kept: Kept, field: str
) -> None:
    """One field differs: it is built, and the nearest one there is told with both values."""
    key, value, there, asked = OTHERS[field]
    base = plan_of({**MOCK, "limits.max_seq_len": 8192, "trtllm_version": "1.2.1"})
    other = plan_of({**MOCK, "limits.max_seq_len": 8192, "trtllm_version": "1.2.1", key: value})
    checkpoint = make_checkpoint(base)
    kept.build(checkpoint, other, checkpoint.parent / "other")
    assert kept.build(checkpoint, base, checkpoint.parent / "out").taken_from is None
    _, found = nearest_before_last(kept)
    assert (field, there, asked) == (found[0].field, found[0].there, found[0].asked)
    assert f"an engine is there for {field} {there}, this asks {asked}" in sentence(found)


def nearest_before_last(kept: Kept) -> Any:
    """Return what was nearest to the last engine asked for, that one aside."""
    store = Store(kept.store.folder)
    latest = next(store.entries())
    (latest.folder / "trtkit-manifest.json").rename(latest.folder / "away")
    return nearest(store, kept.missed[-1])


def test_the_nearest_engine_is_the_one_with_the_fewest_differences(make_checkpoint: MakeCheckpoint, kept: Kept) -> None:
    """Of two that are there the one that differs in its limit alone is told, and another model's never."""
    made, near, far = (plan_of({**MOCK, **more}) for more in ({}, {"limits.max_seq_len": 3072}, FAR))
    checkpoint = make_checkpoint(made)
    for number, plan in enumerate((near, far)):
        kept.build(checkpoint, plan, checkpoint.parent / f"out{number}")
    asked = Origin(made, kept.missed[0].inputs, None, kept.missed[0].kit_version)
    found = nearest(kept.store, asked)
    assert found is not None
    assert ["limits.max_seq_len"] == [one.field for one in found[1]]
    stranger = made.model_copy(update={"model": made.model.model_copy(update={"vocab": 77})})
    assert nearest(kept.store, Origin(stranger, {}, None, "")) is None


FAR = {"limits.max_seq_len": 3072, "kv_cache.tokens_per_block": 64, "limits.max_batch_size": 2}


def test_another_checkpoint_of_the_same_plan_is_another_engine(make_checkpoint: MakeCheckpoint, kept: Kept) -> None:
    """The digest of the checkpoint is part of the key: weights that were converted again are not mistaken."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    kept.build(checkpoint, made, checkpoint.parent / "out")
    manifest = checkpoint / "trtkit-manifest.json"
    manifest.write_text(manifest.read_text().replace('"facts": {}', '"facts": {"weights": "another training"}'))
    assert kept.build(checkpoint, made, checkpoint.parent / "again").taken_from is None
    assert 2 == len(kept.missed)


def test_an_engine_edited_through_one_of_its_names_is_made_again(make_checkpoint: MakeCheckpoint, kept: Kept) -> None:
    """A file newer than its manifest is hashed before it is handed out, and what was spoilt is replaced."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    first, second = checkpoint.parent / "first", checkpoint.parent / "second"
    kept.build(checkpoint, made, first)
    sound = snapshot(first)
    later = (first / "trtkit-manifest.json").stat().st_mtime_ns + 1
    (first / "rank0.engine").write_bytes(sound["rank0.engine"].swapcase())
    os.utime(first / "rank0.engine", ns=(later, later))
    assert kept.build(checkpoint, made, second).taken_from is None
    assert sound == snapshot(second)
    assert sound == snapshot(next(kept.store.entries()).folder)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_interrupted_build_with_a_store_goes_on_and_leaves_no_trace(
    make_checkpoint: MakeCheckpoint, kept: Kept, steps: int
) -> None:
    """What was finished in the store is not done again, and the end has the bytes of a run alone."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    out, plain = checkpoint.parent / "out", checkpoint.parent / "plain"
    with pytest.raises(KeyboardInterrupt):
        kept.build(checkpoint, made, out, StopsAt(steps))
    assert [] == list(kept.store.entries())
    kept.build(checkpoint, made, out)
    build(checkpoint, made, plain, Silent())
    assert snapshot(plain) == snapshot(out)
    assert 1 == (checkpoint.parent / "out.build.log").read_text().count("$ {python} -m")
    assert {MARK, "uses", next(kept.store.entries()).key} == {path.name for path in kept.store.folder.iterdir()}


def test_a_compiled_engine_of_another_driver_is_no_answer(
    make_checkpoint: MakeCheckpoint, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is the same, so the fact of the manifest decides, for the output and for the store."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    out = checkpoint.parent / "out"
    for driver, expected in (("570", False), ("570", True), ("580", False), ("580", True)):
        monkeypatch.setattr(engine, "_settled", settled_under(driver))
        assert expected == kept.build(checkpoint, made, out).up_to_date
        assert driver == read_manifest(out).facts["driver"]
    assert ["570", "580"] == sorted(entry.manifest.facts["driver"] for entry in kept.store.entries())
    assert ["570", "580"] == [missed.driver for missed in kept.missed]


def settled_under(driver: str) -> Any:
    """Return what settles a build as if it compiled under that driver."""
    real = engine._settled

    def settled(*given: Any) -> Any:
        work = real(*given)
        return engine._Work(work.plan, work.steps, work.sources, work.inputs, driver)

    return settled


def test_the_class_of_a_driver_is_its_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first number of what the kernel module says; none without one; the variable has the last word."""
    monkeypatch.delenv(VARIABLE, raising=False)
    file = tmp_path / "version"
    assert NO_DRIVER == driver_class(file)
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC 13.3.0\n")
    assert "580" == driver_class(file)
    monkeypatch.setenv(VARIABLE, "570")
    assert "570" == driver_class(file)
    monkeypatch.setenv(VARIABLE, "5 7 0")
    with pytest.raises(UsageError, match="names no class of drivers"):
        driver_class(file)


def test_a_key_depends_on_driver_and_engine() -> None:
    """Either makes another place in the store."""
    assert 4 == len({store_key(key, driver) for key in ("a", "b") for driver in ("570", None)})


def test_a_folder_of_yours_is_no_store(tmp_path: Path) -> None:
    """What stands in a store may be removed, so a folder with anything in it is refused."""
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(OutputOccupied, match="no engine store and not empty"):
        make_store(tmp_path)
    with pytest.raises(ManifestError, match="is no engine store"):
        open_store(tmp_path)
    assert ["thesis.tex"] == [path.name for path in tmp_path.iterdir()]


def test_a_store_whose_making_was_cut_is_made(tmp_path: Path) -> None:
    """What a run that was killed left of the mark is no file of yours."""
    (tmp_path / f".{MARK}.123.partial").write_text("{")
    assert tmp_path == make_store(tmp_path).folder
    assert is_store(tmp_path)
    assert [MARK] == [path.name for path in tmp_path.iterdir()]


def test_a_store_that_is_a_file_is_told(tmp_path: Path) -> None:
    """The system's own reason is told in three lines."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="making the engine store"):
        make_store(tmp_path / "file")
