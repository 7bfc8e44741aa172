"""Artifacts: what a manifest says, and what it never says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_staging import make
from trtllm_kit.artifact import MANIFEST, append_log, read_manifest
from trtllm_kit.errors import ManifestError


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"schema_version": 9}'])
def test_a_broken_manifest_is_an_error_not_a_crash(tmp_path: Path, text: str) -> None:
    """Whatever the file holds, reading it ends in ManifestError."""
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(ManifestError):
        read_manifest(tmp_path)


def test_the_manifest_of_another_kind_is_refused(tmp_path: Path) -> None:
    """An engine is not a checkpoint."""
    make(tmp_path / "out")

    with pytest.raises(ManifestError, match="not the checkpoint"):
        read_manifest(tmp_path / "out", "checkpoint")


def test_clock_and_host_go_to_the_log_beside_the_artifact(tmp_path: Path) -> None:
    """The log has them; the manifest does not."""
    make(tmp_path / "out")
    append_log(tmp_path / "out", {"verb": "build"})

    record = json.loads((tmp_path / "out.log.jsonl").read_text().splitlines()[-1])
    assert {"time", "host", "argv", "verb"} == set(record)
    manifest = (tmp_path / "out" / MANIFEST).read_text()
    assert record["host"] not in manifest
    assert str(tmp_path) not in manifest
