"""A converted checkpoint made by hand: real manifest, real plan, no weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trtllm_kit.checkpoint.plan_file import PLAN_FILE, plan_text
from trtllm_kit.plan.plan import Plan, conversion_digest
from trtllm_kit.staging import staged

MakeCheckpoint = Callable[[Plan], Path]


@pytest.fixture(name="make_checkpoint")
def make_checkpoint_in(tmp_path: Path) -> MakeCheckpoint:
    """Write ``work/checkpoint`` for a plan and return its folder."""

    def make(plan: Plan) -> Path:
        folder = tmp_path / "work" / "checkpoint"
        with staged(folder, "checkpoint", conversion_digest(plan)) as stage:
            if stage is not None:
                stage.write_text(PLAN_FILE, plan_text(plan))
                stage.write_text("config.json", "{}\n")
                stage.publish({"plan": plan.digest}, {})
        return folder

    return make
