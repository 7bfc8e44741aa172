"""What stands beside what was made from it: the plan in engines and repositories, the conversion in checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeVar

from trtllm_kit.errors import ManifestError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.frozen import Frozen
from trtllm_kit.plan.conversion import ConversionRecord
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.model import ModelSpec

PLAN_FILE = "trtkit-plan.json"
CONVERSION_FILE = "trtkit-conversion.json"

_Record = TypeVar("_Record", bound=Frozen)


def plan_text(plan: Plan) -> str:
    """Return what the plan's file holds: one text for equal plans, without the place of a text on this machine."""
    return _text(plan.without_places())


def conversion_text(record: ConversionRecord) -> str:
    """Return what the conversion's file holds: one text for equal records."""
    return _text(record)


def read_stored_plan(folder: Path) -> Plan:
    """Read the plan of an engine or repository; raises ``ManifestError`` when there is none that can be read."""
    return _read(folder, PLAN_FILE, Plan, "engine and model repository", "trtkit build or deploy")


def read_conversion(folder: Path) -> ConversionRecord:
    """Read what a checkpoint was made of; raises ``ManifestError`` when there is none that can be read."""
    return _read(folder, CONVERSION_FILE, ConversionRecord, "checkpoint", "trtkit convert")


def stored_model(folder: Path) -> ModelSpec:
    """Return the model that a checkpoint, engine or repository was made of; raises ``ManifestError``."""
    if os.path.lexists(folder / PLAN_FILE):
        return read_stored_plan(folder).model
    return read_conversion(folder).model


def _text(record: Frozen) -> str:
    return json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _read(folder: Path, name: str, kind: type[_Record], holders: str, makers: str) -> _Record:
    path = folder / name
    try:
        return kind.model_validate_json(read_file(path))
    except FileNotFoundError:
        there = f"every {holders} that trtkit makes has one"
        why = there if folder.is_dir() else "there is no folder of that name"
        raise ManifestError(f"{folder} holds no {name}", why=why, hint=f"give a folder made by {makers}") from None
    except (ValueError, UnfitFile) as error:
        why = error.unfit if isinstance(error, UnfitFile) else f"it is not of schema 1: {error}"
        raise ManifestError(f"{path} cannot be read", why=why, hint="make the folder again") from None
    except OSError as error:
        raise storage_error(error, f"reading {name}") from None
