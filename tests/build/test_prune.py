"""Removing engines from a store: what the policy lets go and nothing uses, at once, and never under anyone's hands."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import MakeCheckpoint, write_checkpoint
from tests.build.test_engine import MOCK, StopsAt, plan_of, snapshot
from tests.build.test_store import Kept, flip
from trtllm_kit.artifact import MANIFEST, read_manifest
from trtllm_kit.build import prune
from trtllm_kit.build.prune import Policy, Verdict, judged, remove
from trtllm_kit.build.store import MARK, note_use_of
from trtllm_kit.build.verify import Damage, verify
from trtllm_kit.errors import storage_error
from trtllm_kit.progress import Silent
from trtllm_kit.staging import locked, staged

DAY_NS = 86_400 * 10**9
LENGTHS = (2048, 3072, 4096)


def nobody(_: Path) -> str:
    """No server runs."""
    return ""


@pytest.fixture(scope="module", name="template")
def template_of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of three engines that nothing uses, the shortest used last, a day between them."""
    folder = tmp_path_factory.mktemp("template")
    kept = Kept(folder / "store")
    checkpoint = write_checkpoint(folder / "checkpoint", plan_of(MOCK))
    for age, length in enumerate(LENGTHS):
        out = folder / str(length)
        kept.build(checkpoint, plan_of({**MOCK, "limits.max_seq_len": length}), out)
        shutil.rmtree(out)
        key = key_of(kept, length)
        for path in (kept.store.uses_of(key), kept.store.place(key) / MANIFEST):
            os.utime(path, ns=(0, 100 * DAY_NS - age * DAY_NS))
    return kept.store.folder


@pytest.fixture(name="kept")
def store_of_three(template: Path, tmp_path: Path) -> Kept:
    """Return a copy of that store; a file copied with a later time than its manifest's would have to be hashed."""
    shutil.copytree(template, tmp_path / "store", symlinks=True)
    return Kept(tmp_path / "store")


def key_of(kept: Kept, length: int) -> str:
    """Return the key of the engine with that limit."""
    text = f'"max_seq_len": {length}'
    return next(key for key in kept.store.finished() if text in (kept.store.place(key) / "config.json").read_text())


def going(kept: Kept, policy: Policy, now_days: int = 100) -> set[int]:
    """Return the limits of the engines that the policy lets go."""
    found = judged(kept.store, policy, now_days * DAY_NS, nobody)
    return {length for length in LENGTHS for one in found if one.key == key_of(kept, length) and not one.stays}


POLICIES = {
    "unused": (Policy(), {2048, 3072, 4096}),
    "keep 0": (Policy(keep=0), {2048, 3072, 4096}),
    "keep 1": (Policy(keep=1), {3072, 4096}),
    "keep 3": (Policy(keep=3), set()),
    "older than a day and a half": (Policy(older_seconds=129_600.0), {4096}),
    "older than a month": (Policy(older_seconds=30 * 86_400.0), set()),
    "keep 2 and older than half a day": (Policy(keep=2, older_seconds=43_200.0), {4096}),
    "keep 1 and older than a day and a half": (Policy(keep=1, older_seconds=129_600.0), {4096}),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_lets_go_what_it_says(kept: Kept, name: str) -> None:
    """Both conditions must allow it, and by the time of the last use."""
    policy, expected = POLICIES[name]
    assert expected == going(kept, policy)


def test_judging_removes_nothing_and_tells_what_would_be_freed(kept: Kept) -> None:
    """A dry run is the judgement alone; the bytes are those of the files."""
    before = snapshot(kept.store.folder)
    (freed,) = {one.bytes for one in judged(kept.store, Policy(keep=2), 100 * DAY_NS, nobody) if not one.stays}
    folder = kept.store.place(key_of(kept, 4096))
    expected = sum(path.stat().st_size for path in folder.iterdir() if not path.is_symlink() and path.name != MANIFEST)
    assert expected == freed
    assert before == snapshot(kept.store.folder)


def test_what_goes_is_gone_with_its_uses_and_the_rest_stays(kept: Kept) -> None:
    """Nothing bears its key any more, and the other engines are as they were."""
    key = key_of(kept, 4096)
    rest = {name: data for name, data in snapshot(kept.store.folder).items() if key not in name}
    assert "" == remove(kept.store, verdict(key), nobody).stays
    assert rest == snapshot(kept.store.folder)
    assert [] == [path for path in kept.store.folder.rglob("*") if key in path.name]


def verdict(key: str) -> Verdict:
    """Return the judgement that an engine goes."""
    return Verdict(key, 0, 0)


def test_an_engine_that_is_locked_stays(kept: Kept) -> None:
    """Who builds or takes it holds its lock; the process that does is told."""
    key = key_of(kept, 2048)
    with locked(kept.store.place(key), 0.0):
        assert f"process {os.getpid()}" in remove(kept.store, verdict(key), nobody).stays
    assert kept.store.place(key).is_dir()


def test_an_engine_that_was_handed_out_stays_until_its_taker_is_gone(
    kept: Kept, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    """By its link in the store, also where the files are copies; the taker is named."""
    made = plan_of({**MOCK, "limits.max_seq_len": 2048})
    out = tmp_path / "taken"
    kept.build(make_checkpoint(made), made, out)
    key = key_of(kept, 2048)
    for path in out.glob("*.engine"):  # as on another disk
        copy = path.read_bytes()
        path.unlink()
        path.write_bytes(copy)
    assert {3072, 4096} == going(kept, Policy())
    assert f"{out} was made from it" == remove(kept.store, verdict(key), nobody).stays
    shutil.rmtree(out)
    assert "" == remove(kept.store, verdict(key), nobody).stays


def test_an_engine_whose_files_have_other_names_stays(kept: Kept, tmp_path: Path) -> None:
    """An output that was moved is found by its files."""
    key = key_of(kept, 2048)
    os.link(kept.store.place(key) / "rank0.engine", tmp_path / "elsewhere.engine")
    assert "its files have other names elsewhere" == remove(kept.store, verdict(key), nobody).stays
    (tmp_path / "elsewhere.engine").unlink()
    assert "" == remove(kept.store, verdict(key), nobody).stays


def test_an_engine_deployed_in_place_stays_while_its_repository_is_there(kept: Kept, tmp_path: Path) -> None:
    """A repository that names it among its inputs uses it; one that was made again from another engine does not."""
    key = key_of(kept, 2048)
    entry = kept.store.entry(key)
    repository = tmp_path / "repository"
    note_use_of(entry.folder, repository)
    for engine, expected in ((entry.manifest.digest, f"{repository} was made from it"), ("another", "")):
        with staged(repository, "repository", engine) as stage:
            assert stage is not None
            stage.publish({"engine": engine}, {})
        (found,) = (one for one in judged(kept.store, Policy(), 0, nobody) if one.key == key)
        assert expected == found.stays


def test_an_engine_that_a_process_serves_stays(kept: Kept, tmp_path: Path) -> None:
    """Whatever its repository holds by now: the server that runs on it may read the engine."""
    key = key_of(kept, 2048)
    note_use_of(kept.store.place(key), tmp_path / "repository")
    found = remove(kept.store, verdict(key), lambda folder: {"repository": "77 serves it"}.get(folder.name, ""))
    assert "77 serves it" == found.stays
    assert kept.store.place(key).is_dir()


def test_an_engine_of_whose_taker_nothing_can_be_known_stays(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of somebody else's, closed to this user, is no folder that is gone."""
    key = key_of(kept, 2048)
    note_use_of(kept.store.place(key), tmp_path / "closed")

    def closed(folder: Path, *kind: Any) -> Any:
        if folder == tmp_path / "closed":
            raise storage_error(PermissionError(13, "Permission denied", str(folder)), "reading a manifest")
        return read_manifest(folder, *kind)

    monkeypatch.setattr(prune, "read_manifest", closed)
    assert "cannot be known: the system says: Permission denied" in remove(kept.store, verdict(key), nobody).stays


def test_an_unfinished_engine_goes_by_its_age_alone(
    kept: Kept, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    """What a killed build left can be gone on with, so keeping a number spares it; nothing of it is left after."""
    made = plan_of({**MOCK, "limits.max_batch_size": 3})
    with pytest.raises(KeyboardInterrupt):
        kept.build(make_checkpoint(made), made, tmp_path / "cut", StopsAt(1))
    (key,) = kept.store.unfinished()
    for policy, stays in ((Policy(keep=0), True), (Policy(older_seconds=1e12), True), (Policy(), False)):
        (found,) = (one for one in judged(kept.store, policy, 100 * DAY_NS, nobody) if one.unfinished)
        assert stays == bool(found.stays)
    assert "" == remove(kept.store, found, nobody).stays
    assert [] == [path for path in kept.store.folder.iterdir() if key in path.name]


def test_an_engine_whose_manifest_is_broken_can_go(kept: Kept) -> None:
    """It can never be handed out again, and it does not hide from prune."""
    key = key_of(kept, 2048)
    (kept.store.place(key) / MANIFEST).write_text("{")
    (found,) = (one for one in judged(kept.store, Policy(keep=9), 100 * DAY_NS, nobody) if one.key == key)
    assert "" == remove(kept.store, found, nobody).stays
    assert not kept.store.place(key).exists()


def test_a_removal_that_was_cut_is_finished_by_the_next(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine is out of its place at once: never half of it is found there."""
    key = key_of(kept, 2048)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(prune, "_clear", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(kept.store, verdict(key), nobody)
    assert key not in kept.store.finished()
    prune.clear_removed(kept.store)
    assert [f"{MARK}", "uses"] == sorted(
        path.name for path in kept.store.folder.iterdir() if path.name not in kept.store.finished()
    )


def test_verify_finds_a_flipped_bit_and_what_is_missing_or_cut(kept: Kept) -> None:
    """Also behind an unchanged time: size and hash that the manifest has, and those found; a sound one has none."""
    folder = kept.store.place(key_of(kept, 2048))
    assert () == verify(folder, Silent())
    flip(folder / "rank1.engine")
    (folder / "config.json").unlink()
    with (folder / "rank0.engine").open("ab") as file:
        file.write(b"!")
    found = {one.path: one for one in verify(folder, Silent())}
    assert {"rank1.engine": "other bytes", "config.json": "missing", "rank0.engine": "another size"} == {
        name: one.what for name, one in found.items()
    }
    flipped, longer = found["rank1.engine"], found["rank0.engine"]
    assert flipped.bytes == flipped.found_bytes
    assert flipped.sha256 != flipped.found_sha256
    assert longer.bytes is not None
    assert longer.bytes + 1 == longer.found_bytes
    assert found["config.json"].found_bytes is None


def test_a_manifest_that_cannot_be_read_is_damage(kept: Kept) -> None:
    """An engine that tells no hashes is not sound."""
    folder = kept.store.place(key_of(kept, 2048))
    (folder / MANIFEST).write_text("{")
    (found,) = verify(folder, Silent())
    assert isinstance(found, Damage)
    assert MANIFEST == found.path
