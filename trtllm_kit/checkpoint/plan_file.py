"""The plan beside what was made from it: ``trtkit-plan.json`` in checkpoints, engines and model repositories."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from trtllm_kit.errors import ManifestError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.plan.plan import Plan

PLAN_FILE = "trtkit-plan.json"


def plan_text(plan: Plan) -> str:
    """Return what the file holds: one text for equal plans, in whatever order their mappings were written."""
    return json.dumps(plan.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_stored_plan(folder: Path) -> Plan:
    """Read the plan a folder was made from; raises ``ManifestError`` when there is none that can be read."""
    path = folder / PLAN_FILE
    try:
        return Plan.model_validate_json(read_file(path))
    except FileNotFoundError:
        raise ManifestError(
            f"{folder} holds no {PLAN_FILE}",
            why="every checkpoint, engine and model repository that trtkit makes has one",
            hint="give a folder made by trtkit convert, build or deploy",
        ) from None
    except (ValidationError, UnfitFile) as error:
        why = error.unfit if isinstance(error, UnfitFile) else f"it is not a plan of schema 1: {error}"
        raise ManifestError(f"{path} cannot be read", why=why, hint="make the folder again") from None
    except OSError as error:
        raise storage_error(error, "reading the stored plan") from None
