"""A converted checkpoint made by hand: real manifest, real record, no weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE, conversion_text
from trtllm_kit.plan.conversion import conversion_of
from trtllm_kit.plan.plan import Plan
from trtllm_kit.staging import staged

MakeCheckpoint = Callable[[Plan], Path]


@pytest.fixture(name="make_checkpoint")
def make_checkpoint_in(tmp_path: Path) -> MakeCheckpoint:
    """Write ``work/checkpoint`` for a plan and return its folder."""
    return lambda plan: write_checkpoint(tmp_path / "work" / "checkpoint", plan)


def write_checkpoint(folder: Path, plan: Plan) -> Path:
    """Write the checkpoint of a plan into a folder and return it."""
    with staged(folder, "checkpoint", conversion_of(plan).digest) as stage:
        if stage is not None:
            stage.write_text(CONVERSION_FILE, conversion_text(conversion_of(plan)))
            stage.write_text("config.json", "{}\n")
            stage.publish({"conversion": conversion_of(plan).digest}, {})
    return folder
