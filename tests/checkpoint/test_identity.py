"""The identity of a source: what changes it, and what does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.config_files import read_small_files
from trtllm_kit.checkpoint.identity import identify
from trtllm_kit.checkpoint.reader import open_weights


def identity(folder: Path) -> str:
    """Return the identity of a folder."""
    return identify(open_weights(folder), read_small_files(folder)).digest


def test_a_copy_elsewhere_with_other_times_is_the_same_source(tmp_path: Path) -> None:
    """Neither path nor clock is part of it."""
    folder = write_tiny_model(tmp_path / "here", shards=2)
    copy = shutil.copytree(folder, tmp_path / "there")
    os.utime(copy / "config.json", (1, 1))
    assert identity(folder) == identity(copy)


@pytest.mark.parametrize("change", ["weights", "config.json", "tokenizer.json", "generation_config.json"])
def test_other_contents_are_another_source(tmp_path: Path, change: str) -> None:
    """Other weights of the same shapes, and each small file, change it."""
    folder = write_tiny_model(tmp_path)
    before = identity(folder)
    if change == "weights":
        write_tiny_model(tmp_path, seed=1)
    else:
        (folder / change).write_text((folder / change).read_text() + " ")
    assert before != identity(folder)


def test_a_file_that_is_not_part_of_the_model_changes_nothing(tmp_path: Path) -> None:
    """A README edited later does not cost a conversion."""
    folder = write_tiny_model(tmp_path)
    before = identity(folder)
    (folder / "README.md").write_text("hello")
    assert before == identity(folder)
