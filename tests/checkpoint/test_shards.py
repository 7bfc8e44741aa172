"""Weight files that a run was cut in: the next one goes on behind the last tensor that is safe on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.checkpoint.plans import plan_for
from tests.checkpoint.recorders import Interrupting, Recorder
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint import shards
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.errors import WeightFileError
from trtllm_kit.progress import Silent
from trtllm_kit.staging import Stage

WRITING = "writing weights"
MARK = 20_000


@pytest.fixture
def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose BF16 conversion was cut after 150 kB of its only weight file, and one that was not."""
    monkeypatch.setattr(shards, "MARK_BYTES", MARK)
    source = write_tiny_model(tmp_path / "source")
    convert(source, plan_for(source), tmp_path / "whole", Silent())
    with pytest.raises(KeyboardInterrupt):
        convert(source, plan_for(source), tmp_path / "out", Interrupting(WRITING, 150_000))
    return tmp_path


def rerun(root: Path) -> Recorder:
    """Convert again and compare the weights with those of the run that was not cut; return what was advanced."""
    recorder = Recorder()
    convert(root / "source", plan_for(root / "source"), root / "out", recorder)
    name = "model.safetensors"
    assert (root / "whole" / name).read_bytes() == (root / "out" / name).read_bytes()
    assert recorder.totals[WRITING] == recorder.done[WRITING]
    return recorder


def test_a_run_goes_on_inside_a_file(cut: Path) -> None:
    """At most two marks and a tensor are written again, and the progress announces what is left."""
    whole = sum(path.stat().st_size for path in (cut / "whole").glob("*.safetensors"))
    again = rerun(cut).done[WRITING] - (whole - 150_000)
    assert 0 < again <= 2 * (MARK + 32_768)


def test_a_beginning_that_is_not_what_was_recorded_is_written_again(cut: Path) -> None:
    """Its hash is taken again before anything is put behind it."""
    path = cut / ".out.partial" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    convert(cut / "source", plan_for(cut / "source"), cut / "out", Silent())
    assert (cut / "whole" / "model.safetensors").read_bytes() == (cut / "out" / "model.safetensors").read_bytes()


def test_what_a_killed_run_wrote_behind_the_last_mark_is_dropped(cut: Path) -> None:
    """It may be anything: it was never flushed."""
    path = cut / ".out.partial" / "model.safetensors"
    with path.open("ab") as file:
        file.write(b"\xff" * 100_000)
    rerun(cut)


def test_a_file_shorter_than_its_mark_is_written_anew(cut: Path) -> None:
    """As a disk may leave it that lies about what it has."""
    path = cut / ".out.partial" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    whole = rerun(cut).done[WRITING]
    assert sum(path.stat().st_size for path in (cut / "whole").glob("*.safetensors")) > whole > 150_000


def test_nothing_is_noted_as_safe_once_the_source_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run would go on from it with bytes of two models."""
    monkeypatch.setattr(shards, "MARK_BYTES", MARK)
    source = write_tiny_model(tmp_path / "source")
    noted: list[int] = []

    def record(stage: Stage, file: str, size: int, sha256: str) -> None:
        del stage, file, sha256
        noted.append(size)
        os.utime(source / "model.safetensors", (1, 1))

    monkeypatch.setattr(Stage, "record_prefix", record)
    with pytest.raises(WeightFileError):
        convert(source, plan_for(source), tmp_path / "out", Silent())
    assert 1 == len(noted)
