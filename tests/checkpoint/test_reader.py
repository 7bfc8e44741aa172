"""Opening folders of weights: single file, shards by the index, and what is refused."""

from __future__ import annotations

import json
import os
import re
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.tiny_model import write_safetensors, write_tiny_model
from trtllm_kit.checkpoint import reader
from trtllm_kit.checkpoint.header import INDEX, reopen
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.errors import KitError, ModelNotFound, WeightFileError, WeightIndexError
from trtllm_kit.files import Stamp


def edit_index(folder: Path, **changes: str | None) -> None:
    """Change or remove (None) entries of the index."""
    path = folder / INDEX
    document = json.loads(path.read_text())
    for name, file in changes.items():
        document["weight_map"].pop(name, None)
        if file is not None:
            document["weight_map"][name] = file
    path.write_text(json.dumps(document))


def test_data_equals_what_the_safetensors_library_reads(tmp_path: Path) -> None:
    """In float32 and float16."""
    for dtype in ("float32", "float16"):
        folder = write_tiny_model(tmp_path / dtype, dtype=dtype)
        expected = load_file(folder / "model.safetensors")
        weights = open_weights(folder)
        assert expected.keys() == weights.tensors.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(values, weights.read(name))


def test_shards_give_the_tensors_of_the_single_file(tmp_path: Path) -> None:
    """Three shards hold what one file holds."""
    single = open_weights(write_tiny_model(tmp_path / "one"))
    sharded = open_weights(write_tiny_model(tmp_path / "three", shards=3))
    assert 3 == len(sharded.files)
    assert single.tensors.keys() == sharded.tensors.keys()
    for name in single.tensors:
        np.testing.assert_array_equal(single.read(name), sharded.read(name))


def test_an_empty_tensor_reads_as_empty(tmp_path: Path) -> None:
    """No byte is read and the shape stays."""
    write_safetensors(tmp_path / "model.safetensors", {"a": np.ones((0, 3), np.float32)})
    assert (0, 3) == open_weights(tmp_path).read("a").shape


def test_files_beside_the_index_are_not_read(tmp_path: Path) -> None:
    """Mistral's repositories carry a second copy of the weights under another name."""
    folder = write_tiny_model(tmp_path, shards=2)
    (folder / "consolidated.safetensors").write_bytes(b"not weights at all")
    assert 2 == len(open_weights(folder).files)


def test_a_missing_shard_and_a_truncated_one_are_told_at_once(tmp_path: Path) -> None:
    """Both problems stand in one error, so that one download repairs both."""
    folder = write_tiny_model(tmp_path, shards=3)
    (folder / "model-00001-of-00003.safetensors").unlink()
    cut = folder / "model-00002-of-00003.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    with pytest.raises(WeightIndexError, match="2 problems") as caught:
        open_weights(folder)
    assert "model-00001-of-00003.safetensors is missing" in caught.value.why
    assert "model-00002-of-00003.safetensors is truncated" in caught.value.why
    assert 3 == len(caught.value.lines())


def test_a_tensor_that_its_shard_does_not_hold_is_named(tmp_path: Path) -> None:
    """The index points at the wrong file."""
    folder = write_tiny_model(tmp_path, shards=2)
    edit_index(folder, **{"lm_head.weight": "model-00001-of-00002.safetensors"})
    with pytest.raises(WeightIndexError, match=r"lm_head\.weight is not where the index says"):
        open_weights(folder)


def test_tensors_without_an_index_entry_are_kept_apart(tmp_path: Path) -> None:
    """They lie in a shard and the index does not name them."""
    folder = write_tiny_model(tmp_path, shards=2)
    edit_index(folder, **{"model.norm.weight": None})
    assert {"model.norm.weight"} == open_weights(folder).unindexed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("{}", "weight_map"),
        ("[]", "weight_map"),
        ('{"weight_map": {}}', "empty"),
        ('{"weight_map": {"a": 3}}', "a the file 3"),
        ("[" * 100_000, "nested deeper"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', 'the key "a" occurs twice'),
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """The message says what is wrong with it."""
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(WeightIndexError, match=reason):
        open_weights(tmp_path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "..", ".", "", "/etc", "a\0b", "x" * 256, "ä" * 128])
def test_a_shard_s_name_is_the_name_of_a_file(tmp_path: Path, name: str) -> None:
    """It leads nowhere else, and no file system refuses it; 255 bytes are what Linux allows."""
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(WeightIndexError, match="gives tensor a the file") as caught:
        open_weights(tmp_path)
    assert 3 == len(str(caught.value).splitlines())
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "x" * 255}}))
    with pytest.raises(WeightIndexError, match="is missing"):
        open_weights(tmp_path)


@pytest.mark.parametrize(
    ("place", "kind"), [(INDEX, WeightIndexError), ("model.safetensors", WeightFileError)], ids=["index", "weights"]
)
def test_a_link_that_leads_nowhere_is_told_as_such(tmp_path: Path, place: str, kind: type[KitError]) -> None:
    """The hub's cache is made of links, and a cleaned one has them dangling; there is no file to download beside."""
    (tmp_path / place).symlink_to("blobs/4d7a")
    with pytest.raises(kind, match="it is a symbolic link to blobs/4d7a, which is not there"):
        open_weights(tmp_path)
    (tmp_path / place).unlink()
    (tmp_path / place).symlink_to(place)
    with pytest.raises(kind, match="it is a symbolic link that leads back to itself"):
        open_weights(tmp_path)


def test_pickles_alone_are_refused_with_advice(tmp_path: Path) -> None:
    """They run code when they are read."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(WeightFileError, match="safe_serialization"):
        open_weights(tmp_path)


def test_shards_without_an_index_are_refused(tmp_path: Path) -> None:
    """Nothing says that they are all of the model."""
    folder = write_tiny_model(tmp_path, shards=2)
    (folder / INDEX).unlink()
    with pytest.raises(WeightIndexError, match="2 safetensors files and no"):
        open_weights(folder)


def test_a_folder_without_weights_and_no_folder_are_two_errors(tmp_path: Path) -> None:
    """Each says what is not there."""
    with pytest.raises(WeightFileError, match="no weights"):
        open_weights(tmp_path)
    with pytest.raises(ModelNotFound, match="no folder"):
        open_weights(tmp_path / "nowhere")


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short read has the kit's form, where a mapped file would kill the process."""
    weights = open_weights(write_tiny_model(tmp_path))
    path = tmp_path / "model.safetensors"

    def shrinking(file: Path, stamp: Stamp) -> FileIO:
        opened = reopen(file, stamp)
        os.truncate(path, path.stat().st_size - 100)
        return opened

    monkeypatch.setattr(reader, "reopen", shrinking)
    last = max(weights.tensors.values(), key=lambda tensor: tensor.begin).name
    with pytest.raises(WeightFileError, match=f"changed during the run\n.*became shorter: tensor {re.escape(last)}"):
        weights.read(last)


def test_a_file_is_read_only_while_it_is_the_one_that_was_opened(tmp_path: Path) -> None:
    """Renamed into its place, cut or written to: each is told with what differs."""
    folder = write_tiny_model(tmp_path / "model")
    path = folder / "model.safetensors"
    weights = open_weights(folder)
    before, stat = path.read_bytes(), path.stat()
    (write_tiny_model(tmp_path / "other", seed=1) / "model.safetensors").rename(path)
    with pytest.raises(WeightFileError, match=f"another file was put into its place .*before {stat.st_ino}"):
        weights.read("lm_head.weight")
    weights = open_weights(folder)
    path.write_bytes(before[:-100])
    with pytest.raises(WeightFileError, match=f"holds {len(before) - 100} bytes, and held {len(before)}"):
        weights.read("lm_head.weight")
    path.write_bytes(before)
    weights = open_weights(folder)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 2_500_000_000))
    with pytest.raises(WeightFileError, match=r"written to \+2\.500 s"):
        weights.read("lm_head.weight")
