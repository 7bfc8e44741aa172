"""The link to the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.checkpoint.link import point
from trtllm_kit.errors import StorageError


def test_it_is_relative_to_where_it_really_lies(tmp_path: Path) -> None:
    """Behind a link into a deeper folder the way back is longer; the checkpoint's own links are followed."""
    real, deep = tmp_path / "models" / "checkpoint", tmp_path / "a" / "b" / "c"
    real.mkdir(parents=True)
    deep.mkdir(parents=True)
    (tmp_path / "checkpoint").symlink_to(real)
    (tmp_path / "engine").symlink_to(deep)

    point(tmp_path / "engine" / "checkpoint", tmp_path / "checkpoint")

    assert "../../../models/checkpoint" == str((deep / "checkpoint").readlink())
    assert real.resolve() == (deep / "checkpoint").resolve(strict=True)


def test_a_right_link_is_left_and_another_replaced(tmp_path: Path) -> None:
    """A second call with the same checkpoint writes nothing; with another one it leads there."""
    link = tmp_path / "link"
    point(link, tmp_path / "one")
    before = link.lstat().st_ino, link.lstat().st_mtime_ns

    point(link, tmp_path / "one")
    assert before == (link.lstat().st_ino, link.lstat().st_mtime_ns)
    point(link, tmp_path / "two")
    assert "two" == str(link.readlink())


def test_what_is_no_link_is_not_removed(tmp_path: Path) -> None:
    """A folder in the link's place is an error that names it."""
    (tmp_path / "link").mkdir()

    with pytest.raises(StorageError, match="linking the checkpoint"):
        point(tmp_path / "link", tmp_path / "one")
