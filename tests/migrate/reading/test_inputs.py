"""Inputs in the style of public guides, each with all that is to be read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.migrate.found import Reader
from trtllm_kit.migrate.reading.path import found
from trtllm_kit.spec.load import load_profile

INPUTS = Path(__file__).parents[1] / "inputs"
CASES = sorted(path.parent.name for path in INPUTS.glob("*/expected.yaml"))
READERS = {reader.name.lower(): reader for reader in Reader}


def expected(case: str) -> dict[str, Any]:
    """Return what a case is to give."""
    document: dict[str, Any] = yaml.safe_load((INPUTS / case / "expected.yaml").read_text(encoding="utf-8"))
    return document


def place(at: int | str, path: Path) -> tuple[str, int]:
    """Return file and line of ``12`` (in the input itself) or ``config.json:12``."""
    file, _, line = (f"{path.name}:{at}" if isinstance(at, int) else at).rpartition(":")
    return file, int(line)


def test_there_are_as_many_inputs_as_were_promised() -> None:
    """At least forty inputs are kept."""
    assert 40 <= len(CASES)


@pytest.mark.parametrize("case", CASES)
def test_settings_of(case: str) -> None:
    """Every setting of the input is read with its value and line, and no other."""
    wanted = expected(case)
    path = INPUTS / case / wanted["path"]
    settings = [
        (READERS[row[0]], row[1], repr(row[2]), *place(row[3], path), row[4] if len(row) > len("rnvl") else "")
        for row in wanted["settings"]
    ]
    read = found(path)
    assert sorted(settings) == sorted(
        (one.reader, one.name, repr(one.value), one.where.file, one.where.line, one.model) for one in read.settings
    )
    assert wanted["release"] == read.release


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_read_of(case: str) -> None:
    """Every word that cannot be read is told of on its line with a reason, and nothing else is."""
    wanted = expected(case)
    path = INPUTS / case / wanted["path"]
    told = found(path).unread
    for at, text in wanted["unread"]:
        file, line = place(at, path)
        near = [one for one in told if (one.where.file, one.where.line) == (file, line) and text in one.text]
        assert near, f"{file}:{line}: {text} is in none of {told}"
        assert all(one.why for one in near)
    assert len(wanted["unread"]) == len(told)


@pytest.mark.parametrize("case", CASES)
def test_expected_profile_of(case: str, tmp_path: Path) -> None:
    """The profile that a case expects is one that the kit reads."""
    head = {"schema_version": 1, "name": "migrated", "hardware": "h200x8-700w", "trtllm_version": "1.2.1"}
    file = tmp_path / "profile.yaml"
    file.write_text(yaml.safe_dump(head | expected(case)["profile"]), encoding="utf-8")
    assert "migrated" == load_profile(str(file)).profile.name
