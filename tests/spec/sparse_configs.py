"""Small documents of the families with sparse, compressed or delta attention, to change."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cli import MODELS
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec

_FILES = {
    "deepseek_v32": "deepseek-v3.2",
    "glm_moe_dsa": "glm-5",
    "deepseek_v4": "deepseek-v4",
    "kimi_linear": "kimi-k3",
    "minimax_m3": "minimax-m3",
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    family: json.loads((MODELS / f"{name}.json").read_text("utf-8")) for family, name in _FILES.items()
}


def sparse_config(family: str, **changes: Any) -> dict[str, Any]:
    """Return the document of a family with some keys of its text model changed."""
    document = DOCUMENTS[family]
    if "text_config" not in document:
        return document | changes
    return document | {"text_config": document["text_config"] | changes}


def read_sparse(family: str, **changes: Any) -> ModelSpec:
    """Read the document of a family with some keys of its text model changed."""
    return read_model_spec(sparse_config(family, **changes), "config.json")
