"""A source that changes while it is converted: refused, nothing left, and nothing later taken for finished."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoint.plans import plan_for
from tests.checkpoint.recorders import Interrupting, Recorder
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.errors import KitError, WeightFileError
from trtllm_kit.progress import Silent
from trtllm_kit.staging import Stage

CONFIG, TOKENIZER, SHARD = "config.json", "tokenizer.json", "model-00001-of-00003.safetensors"
CALIBRATING, WRITING, READING = "calibrating", "writing weights", "comparing layer by layer"


class Meddling(Recorder):
    """Does something to the source once more than ``after`` was advanced under ``label``."""

    def __init__(self, label: str, after: float, act: Callable[[], object]) -> None:
        """Take the moment and the deed."""
        super().__init__()
        self._moments = [(label, after, act)]

    def then(self, label: str, after: float, act: Callable[[], object]) -> Meddling:
        """Add a later moment."""
        self._moments.append((label, after, act))
        return self

    def advance(self, amount: float) -> None:
        """Act when the moment has come."""
        super().advance(amount)
        while self._moments and self.done.get(self._moments[0][0], -1.0) > self._moments[0][1]:
            self._moments.pop(0)[2]()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model in three shards."""
    return write_tiny_model(tmp_path / "source", shards=3)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another training of the same model, with the same sizes and times."""
    return write_tiny_model(tmp_path / "other", seed=1, shards=3)


def swap(source: Path, other: Path) -> Callable[[], object]:
    """Return what renames another training's shards into place, as a finished download does."""

    def act() -> None:
        for path in sorted(other.glob("*.safetensors")):
            os.utime(path, ns=(0, (source / path.name).stat().st_mtime_ns))
            (source / f"{path.name}.good").hardlink_to(source / path.name)
            shutil.copy2(path, source / f"{path.name}.new")
            (source / f"{path.name}.new").rename(source / path.name)

    return act


def restore(source: Path) -> None:
    """Rename the good shards back."""
    for path in source.glob("*.good"):
        path.rename(path.with_suffix(""))


def refused(source: Path, out: Path, meddling: Meddling, weights: str, culprit: str) -> KitError:
    """Convert while somebody meddles; check the error and that nothing is left."""
    with pytest.raises(WeightFileError, match="changed during the run") as caught:
        convert(source, plan_for(source, weights), out, meddling, shard_bytes=60_000)
    assert culprit in caught.value.what
    assert 3 == len(str(caught.value).splitlines())
    assert not [path.name for path in out.parent.iterdir() if "out" in path.name]
    return caught.value


@pytest.mark.parametrize(
    ("weights", "label", "after"),
    [("bf16", WRITING, 1000), ("bf16", WRITING, 150_000), ("fp8", CALIBRATING, 0), ("fp8", READING, 1)],
)
def test_shards_renamed_into_place_are_refused(
    tmp_path: Path, source: Path, other: Path, weights: str, label: str, after: float
) -> None:
    """At whatever moment: the manifest would name the source that was checked, and hold the other one's weights."""
    refused(source, tmp_path / "out", Meddling(label, after, swap(source, other)), weights, "model-0000")
    restore(source)
    conversion = convert(source, plan_for(source, weights), tmp_path / "out", Silent(), shard_bytes=60_000)
    assert not conversion.up_to_date


def test_shards_that_are_swapped_and_put_back_are_refused_too(tmp_path: Path, source: Path, other: Path) -> None:
    """At the end all is as it was, and yet a part came from elsewhere: all of the second shard."""
    meddling = Meddling(WRITING, 20_000, swap(source, other)).then(WRITING, 130_000, lambda: restore(source))
    refused(source, tmp_path / "out", meddling, "bf16", "model-0000")


def overwrite(path: Path, *, keep_time: bool) -> Callable[[], object]:
    """Return what changes one byte in the middle of a file."""

    def act() -> None:
        before = path.stat()
        with path.open("r+b") as file:
            file.seek(before.st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        moved = before.st_mtime_ns + (0 if keep_time else 1_000_000_000)
        os.utime(path, ns=(before.st_atime_ns, moved))

    return act


def test_a_write_into_a_shard_is_seen(tmp_path: Path, source: Path) -> None:
    """Its time moves."""
    act = overwrite(source / SHARD, keep_time=False)
    error = refused(source, tmp_path / "out", Meddling(WRITING, 200_000, act), "bf16", SHARD)
    assert "written to" in error.why


def test_a_write_that_keeps_the_time_is_seen_by_the_contents(tmp_path: Path, source: Path) -> None:
    """The identity is taken again at the end."""
    act = overwrite(source / SHARD, keep_time=True)
    error = refused(source, tmp_path / "out", Meddling(READING, 1, act), "fp8", SHARD)
    assert "contents" in error.why


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER])
def test_a_small_file_that_changes_is_refused(tmp_path: Path, source: Path, name: str) -> None:
    """Half a download is not a model."""
    path = source / name

    def act() -> None:
        path.write_text(path.read_text().replace("\n", "\r\n"), newline="")

    refused(source, tmp_path / "out", Meddling(WRITING, 1000, act), "bf16", name)


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER])
def test_what_is_written_is_what_was_read_at_the_start(
    tmp_path: Path, source: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when the file is another one for a while, and is back at the end."""
    path, good, record = source / name, (source / name).read_bytes(), Stage.record
    convert(source, plan_for(source), tmp_path / "expected", Silent())
    document = json.dumps(json.loads(good) | {"model_max_length": 7}).encode()

    def restoring(stage: Stage, relative: str, sha256: str | None = None) -> object:
        if relative == "trtkit-conversion.json":  # the last file before the source is looked at again
            path.write_bytes(good)
        return record(stage, relative, sha256)

    monkeypatch.setattr(Stage, "record", restoring)
    meddling = Meddling(WRITING, 1000, lambda: path.write_bytes(document))
    convert(source, plan_for(source), tmp_path / "out", meddling)
    assert (tmp_path / "expected" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_no_file_made_of_a_changed_source_is_recorded(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed there would hand it on to the next one."""
    recorded: list[str] = []
    monkeypatch.setattr(Stage, "record", lambda stage, relative, sha256=None: recorded.append(relative))
    size = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    meddling = Meddling(WRITING, size * 0.9, overwrite(source / SHARD, keep_time=False))
    with pytest.raises(WeightFileError):
        convert(source, plan_for(source), tmp_path / "out", meddling)
    assert [] == recorded


def test_a_run_that_goes_on_says_so(tmp_path: Path, source: Path) -> None:
    """A fresh one and one that is up to date do not."""
    out, plan = tmp_path / "out", plan_for(source)
    with pytest.raises(KeyboardInterrupt):
        convert(source, plan, out, Interrupting(WRITING, 100_000), shard_bytes=50_000)
    resumed = convert(source, plan, out, Silent(), shard_bytes=50_000)
    again = convert(source, plan, out, Silent(), shard_bytes=50_000)
    fresh = convert(source, plan, tmp_path / "fresh", Silent(), shard_bytes=50_000)
    assert [True, False, False] == [conversion.resumed for conversion in (resumed, again, fresh)]
    assert resumed.manifest == fresh.manifest
