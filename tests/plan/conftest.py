"""What the plan tests share: real model dimensions."""

from __future__ import annotations

import json
from pathlib import Path

from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def golden_model(name: str) -> ModelSpec:
    """Read one of the small config.json files with a model's public dimensions."""
    path = GOLDEN / "models" / f"{name}.json"
    return read_model_spec(json.loads(path.read_text("utf-8")), path.name)
