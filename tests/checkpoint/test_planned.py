"""Families that are planned alone are refused by what reads or writes weights, before a weight is looked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import MODELS
from tests.support.specs import hardware
from trtllm_kit.checkpoint.convert import conversion_steps
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.errors import UnknownArchitecture
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.spec.load import load_model, load_profile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the ``config.json`` of a hybrid and no weights."""
    shutil.copy(MODELS / "nemotron-h.json", tmp_path / "config.json")
    return tmp_path


def test_a_conversion_refuses_it_by_name(folder: Path) -> None:
    """The refusal comes before the one for missing weight files."""
    plan = make_plan(load_model(folder), load_profile("h200x1-llama3.1-8b-fp8"), hardware(1))
    with pytest.raises(UnknownArchitecture, match="NemotronHForCausalLM is planned, not converted"):
        conversion_steps(folder, plan)


def test_the_reference_runtime_refuses_it_by_name(folder: Path) -> None:
    """What opens a checkpoint to run it says that the family is planned alone."""
    with pytest.raises(UnknownArchitecture, match="NemotronHForCausalLM is planned, not converted"):
        open_checkpoint(folder)
