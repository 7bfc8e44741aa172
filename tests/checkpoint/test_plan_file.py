"""The plan stored beside an artifact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.plan_file import PLAN_FILE, plan_text, read_stored_plan
from trtllm_kit.errors import ManifestError


def test_a_stored_plan_comes_back_equal(tmp_path: Path) -> None:
    """Every decision survives the file."""
    plan = plan_for(write_tiny_model(tmp_path), "fp8", "fp8")
    (tmp_path / PLAN_FILE).write_text(plan_text(plan), encoding="utf-8")
    assert plan == read_stored_plan(tmp_path)
    assert plan.digest == read_stored_plan(tmp_path).digest


@pytest.mark.parametrize("text", [None, "{", '{"schema_version": 1}'])
def test_no_plan_and_a_broken_one_are_told(tmp_path: Path, text: str | None) -> None:
    """The hint says which folder to give."""
    if text is not None:
        (tmp_path / PLAN_FILE).write_text(text)
    with pytest.raises(ManifestError):
        read_stored_plan(tmp_path)
