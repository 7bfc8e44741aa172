"""Positions a model can tell apart, by the kind of its rope."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.specs import llama_8b
from trtllm_kit.plan.positions import usable_positions
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec, Rope


def model(kind: str, factor: float, claimed: int = 40960, trained: int | None = None) -> ModelSpec:
    """Make a model with that rope and that max_position_embeddings."""
    rope = Rope.model_validate({"theta": 1e6, "kind": kind, "factor": factor, "original_max_position": trained})
    return llama_8b().model_copy(update={"rope": rope, "max_position": claimed})


@pytest.mark.parametrize(
    ("made", "sure", "most"),
    [
        (model("default", 1.0), 40960, 40960),
        (model("yarn", 4.0, trained=32768), 131072, 131072),
        (model("yarn", 4.0, claimed=131072, trained=32768), 131072, 131072),
        (model("yarn", 1.0, trained=32768), 32768, 40960),
        (model("yarn", 2.0), 81920, 81920),
        (model("linear", 4.0), 40960, 163840),
        (model("dynamic", 2.0), 40960, 81920),
        (model("linear", 0.5), 40960, 40960),
        (model("longrope", 32.0, claimed=131072, trained=4096), 131072, 131072),
        (model("llama3", 8.0, claimed=131072, trained=8192), 131072, 131072),
    ],
)
def test_the_rope_decides_what_max_position_means(made: ModelSpec, sure: int, most: int) -> None:
    """YaRN stretches the trained length, linear and dynamic may stretch the claimed one, Llama 3 counts it already."""
    found = usable_positions(made)
    assert (sure, most) == (found.sure, found.most)


def test_qwen3_8b_as_its_authors_stretch_it(shared: Path) -> None:
    """The model card's rope_scaling (YaRN, factor 4, original 32,768) gives 131,072 positions, not 40,960."""
    config = json.loads((shared / "models" / "Qwen--Qwen3-8B_config.json").read_text("utf-8"))
    stretched = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    plain, long = (read_model_spec(config | {"rope_scaling": scaling}, "") for scaling in (None, stretched))
    assert 40960 == usable_positions(plain).sure
    assert 131072 == usable_positions(long).sure
