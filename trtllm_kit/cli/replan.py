"""Plan again from the model a checkpoint or engine was made of, under the profile given now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.cli.asked import asked_for

if TYPE_CHECKING:
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile


def replan(folder: Path, profile: str) -> Plan:
    """Return the plan of ``profile`` for the model recorded in ``folder``; raises ``PlanRefused`` on ERROR findings."""
    return replan_as(folder, asked_for(profile))


def replan_as(folder: Path, asked: tuple[LoadedProfile, Hardware]) -> Plan:
    """Return the plan of a profile on its machine for the model recorded in ``folder``; raises ``PlanRefused``."""
    from trtllm_kit.checkpoint.plan_file import stored_model
    from trtllm_kit.plan.decide import make_plan, require_ok

    loaded, hardware = asked
    made = make_plan(stored_model(folder), loaded, hardware)
    require_ok(made)
    return made
