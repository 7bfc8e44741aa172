"""What is left out of a folder is told of, and the rest is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import trtllm_kit.migrate.reading.path as read_module
from trtllm_kit.errors import StorageError
from trtllm_kit.migrate.reading.path import found
from trtllm_kit.serve.target_folder import write


def left_out(folder: Path) -> dict[str, str]:
    """Return the reason by file or folder of what was not read."""
    return {one.where.file: one.why for one in found(folder).unread}


def test_what_is_left_out_of_a_folder_is_told_of(tmp_path: Path) -> None:
    """A script too large to be one, folders too deep, and a link to an engine elsewhere; weights and caches are not."""
    root = tmp_path / "project"
    deep = root.joinpath(*"abcdefgh", "i")
    for folder in (deep, root / ".git", root / "models", tmp_path / "engine"):
        folder.mkdir(parents=True)
    (root / "build.sh").write_text("trtllm-build --max_batch_size 4\n", encoding="utf-8")
    (deep / "build.sh").write_text("trtllm-build --max_batch_size 8\n", encoding="utf-8")
    (tmp_path / "engine" / "config.json").write_text('{"build_config": {"max_batch_size": 2}}', encoding="utf-8")
    (root / "models" / "1").symlink_to(tmp_path / "engine")
    (root / "models" / "back").symlink_to(root)
    (root / "models" / "gone").symlink_to(tmp_path / "gone")
    for name in ("large.sh", "weights", "model.safetensors", ".git/large.sh"):
        with (root / name).open("wb") as file:
            file.truncate((16 << 20) + 1)
    told = left_out(root)

    assert {"a/b/c/d/e/f/g/h", "large.sh", "models/1"} == set(told)
    assert ("deeper than 8" in told["a/b/c/d/e/f/g/h"], "16777216" in told["large.sh"]) == (True, True)
    assert "not followed" in told["models/1"]
    assert [("max_batch_size", 4)] == [(one.name, one.value) for one in found(root).settings]


def test_a_folder_or_file_that_may_not_be_opened_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is read; where it is all that was given, that is an error."""
    (tmp_path / "closed").mkdir()
    for name in ("build.sh", "closed.sh"):
        (tmp_path / name).write_text("trtllm-build --max_batch_size 4\n", encoding="utf-8")
    scan, opened = os.scandir, read_module.read_file

    def scandir(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    def read_file(path: Path, most: int) -> bytes:
        if path.name == "closed.sh":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, most)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(read_module, "read_file", read_file)

    assert {"closed": True, "closed.sh": True} == {
        name: "Permission denied" in why for name, why in left_out(tmp_path).items()
    }
    for only in ("closed", "closed.sh"):
        with pytest.raises(StorageError, match="closed"):
            found(tmp_path / only)


def test_more_files_than_are_read_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that is left out is named."""
    monkeypatch.setattr(read_module, "_MOST_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.sh").write_text("trtllm-build --max_batch_size 4\n", encoding="utf-8")

    assert {"c.sh": "more than 2 files"} == left_out(tmp_path)


@pytest.mark.parametrize("out", ["migrated", "."])
def test_what_a_migration_wrote_is_not_migrated(tmp_path: Path, out: str) -> None:
    """A folder that is written into what is migrated changes nothing of the next run; a file of a person's counts."""
    (tmp_path / "build.sh").write_text("trtllm-build --max_batch_size 4\n", encoding="utf-8")
    before = found(tmp_path).settings
    model = 'name: "tensorrt_llm"\nmax_batch_size: 8\n'
    write(tmp_path / out, {"repository/tensorrt_llm/config.pbtxt": model}, {"target": "migration"})

    assert before == found(tmp_path).settings
    (tmp_path / out / "config.pbtxt").write_text(model, encoding="utf-8")
    assert len(before) < len(found(tmp_path).settings)


def test_a_file_of_another_kind_that_builds_engines_is_told_of(tmp_path: Path) -> None:
    """A Makefile and a program; those that do not, and what is no text, are nobody's business."""
    for name, text in {
        "Makefile": "engine:\n\ttrtllm-build --max_batch_size 4\n",
        "serve.py": "run(['launch_triton_server.py'])\n",
        "model.py": "import json\n",
        "weights": "\0trtllm-build",
        "LICENSE": "text\n",
        "tool": "#!/usr/bin/env python3\nprint('a quote\\'')\n",
        "start": "#!/usr/bin/env -S bash -eu\ntrtllm-build --max_seq_len 4\n",
        "build.sh": "trtllm-build --max_batch_size 4\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    told = [(str(one.where), one.text) for one in found(tmp_path).unread]

    assert [
        ("Makefile:2", "trtllm-build --max_batch_size 4"), ("serve.py:1", "run(['launch_triton_server.py'])")
    ] == told  # fmt: skip
    assert ["max_batch_size", "max_seq_len"] == [one.name for one in found(tmp_path).settings]
