"""Every broken input tried: a three-line error of the right class, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.checkpoint.recorders import Recorder
from tests.checkpoint.test_reader import edit_index
from tests.support.tiny_model import write_tiny_model
from tests.test_files import UNFIT
from trtllm_kit.checkpoint import shards
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.errors import (
    CalibrationError,
    KitError,
    ManifestError,
    ModelConfigError,
    ModelNotFound,
    StorageError,
    TensorError,
    WeightFileError,
    WeightIndexError,
)
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent

SHARD = "model-00002-of-00003.safetensors"


def truncate(source: Path) -> None:
    """Cut a shard."""
    path = source / SHARD
    path.write_bytes(path.read_bytes()[:-1])


def pointer(source: Path) -> None:
    """Leave a git-LFS pointer where a shard was."""
    (source / SHARD).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n")


def lose_shard(source: Path) -> None:
    """Remove a shard."""
    (source / SHARD).unlink()


def lose_entry(source: Path) -> None:
    """Remove an entry of the index."""
    edit_index(source, **{"model.layers.0.mlp.up_proj.weight": None})


def lose_index(source: Path) -> None:
    """Remove the index."""
    (source / "model.safetensors.index.json").unlink()


def garble(source: Path) -> None:
    """Overwrite the beginning of a shard."""
    path = source / SHARD
    path.write_bytes(b"\xff" * 64 + path.read_bytes()[64:])


def poison(value: bytes) -> Callable[[Path], None]:
    """Return what writes a value into the middle of a projection."""

    def edit(source: Path) -> None:
        tensor = open_weights(source).tensors["model.layers.1.mlp.down_proj.weight"]
        data = bytearray(tensor.file.read_bytes())
        data[tensor.begin + 1000 : tensor.begin + 1002] = value
        tensor.file.write_bytes(data)

    return edit


def pickle_only(source: Path) -> None:
    """Leave pickles alone."""
    for path in source.glob("model*"):
        path.unlink()
    (source / "pytorch_model.bin").write_bytes(b"\x80\x02")


def quantise_config(source: Path) -> None:
    """Say that the weights are quantised."""
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4}
    (source / "config.json").write_text(json.dumps(config))


BROKEN: dict[str, tuple[Callable[[Path], None], type[KitError], str]] = {
    "truncated shard": (truncate, WeightFileError, "truncated"),
    "git-LFS pointer": (pointer, WeightFileError, "git-LFS"),
    "missing shard": (lose_shard, WeightIndexError, SHARD),
    "missing index entry": (lose_entry, WeightIndexError, "up_proj"),
    "missing index": (lose_index, WeightIndexError, "3 safetensors files"),
    "garbled header": (garble, WeightFileError, SHARD),
    "NaN weight": (poison(b"\xc0\x7f"), TensorError, r"layers\.1\.mlp\.down_proj\.weight holds NaN"),
    "infinite weight": (poison(b"\x80\xff"), TensorError, r"layers\.1\.mlp\.down_proj\.weight holds infinity"),
    "pickles": (pickle_only, WeightFileError, "pickles"),
    "quantised already": (quantise_config, TensorError, "awq"),
}


@pytest.mark.parametrize("weights", ["bf16", "fp8"])
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_input_gives_three_lines_and_leaves_nothing(case: str, weights: str, tmp_path: Path) -> None:
    """The error is of the right class, names the culprit, and neither output nor stage remains."""
    breaking, kind, words = BROKEN[case]
    source = write_tiny_model(tmp_path / "source", shards=3)
    plan = plan_for(source, weights, weights)
    breaking(source)
    refused(source, plan, tmp_path / "out", kind, words)
    assert ["source"] == [path.name for path in tmp_path.iterdir()]


def refused(source: Path, plan: Plan, out: Path, kind: type[KitError], words: str) -> KitError:
    """Convert, and return the error after checking its class, words and form."""
    with np.errstate(all="ignore"), pytest.raises(kind, match=words) as caught:
        convert(source, plan, out, Silent())
    assert kind is type(caught.value)
    assert 3 == len(str(caught.value).splitlines())
    return caught.value


@pytest.fixture
def never_waiting() -> Iterator[None]:
    """End a test that waits for a writer, with an error."""

    def end(*_: object) -> None:
        raise TimeoutError("it waited")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


PLACES: dict[str, type[KitError]] = {
    "config.json": ModelConfigError,
    SHARD: WeightFileError,
    "model.safetensors.index.json": WeightIndexError,
    "tokenizer.json": ModelConfigError,
    "generation_config.json": ModelConfigError,
    "text.txt": CalibrationError,
}


@pytest.mark.usefixtures("never_waiting")
@pytest.mark.parametrize("kind", UNFIT)
@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_file_in_a_file_s_place_is_refused_at_once(tmp_path: Path, name: str, kind: str) -> None:
    """A named pipe, a device, a socket, a folder or a link that leads nowhere: no waiting, and nothing is skipped."""
    source = write_tiny_model(tmp_path / "source", shards=3)
    text = source / "text.txt"
    text.write_text("the end of the tin man " * 20)
    plan = plan_for(source, "fp8", "fp8", text=str(text))
    (source / name).unlink()
    make, words = UNFIT[kind]
    make(source / name)
    error = refused(source, plan, tmp_path / "out", PLACES[name], words)
    assert name in error.what
    assert ["source"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.usefixtures("never_waiting")
@pytest.mark.parametrize("kind", UNFIT)
def test_a_checkpoint_with_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """What a server reads of a checkpoint: the tokenizer, the quantisation, and how it was made."""
    make, words = UNFIT[kind]
    source = write_tiny_model(tmp_path / "source")
    convert(source, plan_for(source, "fp8"), tmp_path / "fp8", Silent())
    convert(source, plan_for(source), tmp_path / "bf16", Silent())
    for folder, name, wrong, read in (
        ("fp8", "tokenizer.json", ModelNotFound, load_tokenizer),
        ("fp8", "hf_quant_config.json", ModelConfigError, load_reference),
        ("bf16", "trtkit-conversion.json", ManifestError, load_reference),
    ):
        (tmp_path / folder / name).unlink()
        make(tmp_path / folder / name)
        with pytest.raises(wrong, match=words):
            read(tmp_path / folder)


def test_a_tokenizer_of_another_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """It gives tokens that the embedding does not have; that is an input, not the command line (exit 3)."""
    source = write_tiny_model(tmp_path / "source", vocab_size=200)
    recorder = Recorder()
    with pytest.raises(CalibrationError, match="which the model does not have") as caught:
        convert(source, plan_for(source, "fp8"), tmp_path / "out", recorder)
    assert 3 == caught.value.exit_code
    assert "run from 0 to 199" in caught.value.why
    assert {} == recorder.done
    assert ["source"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.usefixtures("never_waiting")
def test_absurd_numbers_of_experts_are_refused_at_once(tmp_path: Path) -> None:
    """A thousand million missing tensors are not listed one by one."""
    source = write_tiny_model(tmp_path / "source", "mixtral")
    config = json.loads((source / "config.json").read_text()) | {"num_local_experts": 10**9}
    (source / "config.json").write_text(json.dumps(config))
    refused(source, plan_for(source), tmp_path / "out", TensorError, "1000 problems")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that every user may read and write."""
    folder = Path(tempfile.mkdtemp(prefix="trtkit-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Run as a user without privileges; root only can become one."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


@pytest.mark.parametrize("hidden", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_this_user_may_not_read_is_named(open_folder: Path, hidden: str, request: pytest.FixtureRequest) -> None:
    """Permission denied, with the path and what to do, and nothing left."""
    source = write_tiny_model(open_folder / "source")
    plan = plan_for(source, "fp8", "fp8")
    (source / hidden).chmod(0)
    request.getfixturevalue("unprivileged")
    error = refused(source, plan, open_folder / "out", StorageError, "Permission denied")
    assert hidden in error.what
    assert ["source"] == [path.name for path in open_folder.iterdir()]


def test_an_output_this_user_may_not_write_is_named(open_folder: Path, request: pytest.FixtureRequest) -> None:
    """The lock or the stage cannot be made there."""
    source = write_tiny_model(open_folder / "source")
    plan = plan_for(source)
    (open_folder / "closed").mkdir(mode=0o555)
    request.getfixturevalue("unprivileged")
    refused(source, plan, open_folder / "closed" / "out", StorageError, "Permission denied")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 400 KiB; only root can mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("SKIPPED FOR LACK OF PRIVILEGE: only root can mount a small tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_without_room_is_refused_with_both_numbers(tmp_path: Path, small_disk: Path) -> None:
    """Before the first byte, by comparing what is needed with what is free."""
    source = write_tiny_model(tmp_path / "source")
    recorder = Recorder()
    with pytest.raises(StorageError, match="no room") as caught:
        convert(source, plan_for(source), small_disk / "out", recorder)
    assert "MiB needed" in caught.value.why
    assert "KiB free" in caught.value.why
    assert {} == recorder.done
    assert [] == list(small_disk.iterdir())


def test_a_disk_that_fills_up_during_the_run_is_an_error(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer took the room after the check; the stage is removed."""
    source = write_tiny_model(tmp_path / "source", num_hidden_layers=6)
    monkeypatch.setattr(shards, "_ROOM_FOR_SMALL_FILES", -(1 << 40))
    refused(source, plan_for(source), small_disk / "out", StorageError, "No space left")
    assert [] == list(small_disk.iterdir())
