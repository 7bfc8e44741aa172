"""Opening folders of weights: single file, shards by the index, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.tiny_model import write_safetensors, write_tiny_model
from trtllm_kit.checkpoint.reader import INDEX, open_weights
from trtllm_kit.errors import ModelNotFound, WeightFileError, WeightIndexError


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
    """Whole tensors and tiles give the library's values, in float32 and float16."""
    for dtype in ("float32", "float16"):
        folder = write_tiny_model(tmp_path / dtype, dtype=dtype)
        expected = load_file(folder / "model.safetensors")
        weights = open_weights(folder)
        assert expected.keys() == weights.tensors.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(values, weights.read(name))
            np.testing.assert_array_equal(values.ravel(), np.concatenate([*weights.tiles(name, 1000)]))


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
    [("{", "not JSON"), ("{}", "weight_map"), ('{"weight_map": {}}', "empty"), ('{"weight_map": {"a": 3}}', "file")],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """The message says what is wrong with it."""
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(WeightIndexError, match=reason):
        open_weights(tmp_path)


def test_an_index_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    """A shard's name is a file name, not a path."""
    (tmp_path / INDEX).write_text('{"weight_map": {"a": "../secret.safetensors"}}')
    with pytest.raises(WeightIndexError, match="beside the index"):
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


def test_a_file_that_shrinks_during_the_run_is_an_error(tmp_path: Path) -> None:
    """A short read has the kit's form, where a mapped file would kill the process."""
    folder = write_tiny_model(tmp_path)
    weights = open_weights(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightFileError, match="shorter during the run"):
        weights.read("lm_head.weight")
