"""Tensors of the models around an engine, and the ensemble's steps, against the recorded contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.upstream.triton_engines import CHOICES, engine_tensors, fixed_type, joined

MODELS = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls")
CHOSEN = {"<logits_datatype>": "logits", "<encoder_input_features_data_type>": "features"}


@pytest.fixture(name="contract")
def read_contract(shared: Path) -> dict[str, Any]:
    """Read the recorded section about engines."""
    document = yaml.safe_load((shared / "contract" / "triton-contract.yaml").read_text("utf-8"))
    section: dict[str, Any] = document["legacy_inflight_batcher_llm"]
    return section


@pytest.mark.parametrize("model", MODELS)
def test_the_newest_release_declares_the_recorded_tensors(contract: dict[str, Any], model: str) -> None:
    """Names, types, dims, forms, and what a request may leave out."""
    wanted = {
        (
            side,
            one["name"],
            "prompts" if one["name"] == "prompt_embedding_table" else CHOSEN.get(one["dtype"], one["dtype"]),
            tuple(one["dims"]),
            side == "input" and not one["required"],
            "scalar" if one.get("reshape_to_scalar") else "ragged" if one.get("ragged") else "plain",
        )
        for side in ("input", "output")
        for one in contract["io"][model][f"{side}s"]
    }

    found = {
        (one.side, one.name, one.data_type, one.dims, one.optional, one.form) for one in engine_tensors(model, "1.2.1")
    }
    assert wanted == found


def test_the_ensemble_joins_as_recorded(contract: dict[str, Any]) -> None:
    """Every step's maps, with what was added later."""
    for step in contract["ensemble_steps"]:
        for side in ("input", "output"):
            wanted = step[f"{side}_map"] | step.get(f"{side}_map_added_later", {})
            assert wanted == joined(step["model_name"], side, "1.2.1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "model", "present", "absent"),
    [
        ("0.12.0", "tensorrt_llm", {"random_seed"}, {"seed", "prompt_table_extra_ids", "context_phase_params"}),
        ("0.13.0", "ensemble", {"prompt_table_extra_id"}, {"num_return_sequences"}),
        ("0.14.0", "tensorrt_llm", {"context_phase_params"}, {"lookahead_window_size"}),
        ("0.17.0", "ensemble", {"num_return_sequences", "return_perf_metrics", "acceptance_rate"}, {"seed"}),
        ("0.18.2", "tensorrt_llm_bls", {"random_seed"}, {"seed"}),
        ("0.19.0", "ensemble", {"seed"}, {"random_seed", "num_input_tokens"}),
        ("0.20.0", "ensemble", {"num_input_tokens", "return_num_output_tokens"}, {"random_seed"}),
        ("1.0.0", "tensorrt_llm_bls", {"image_sizes_input"}, set()),
    ],
)
def test_a_release_has_the_tensors_of_its_time(version: str, model: str, present: set[str], absent: set[str]) -> None:
    """What came, went or was renamed between releases."""
    names = {one.name for one in engine_tensors(model, version)}

    assert present <= names
    assert not absent & names


def test_a_step_maps_only_what_both_sides_have() -> None:
    """The seed goes by its old name in old releases, and tables of prompts have no extra id before 0.13."""
    old = joined("tensorrt_llm", "input", "0.12.0")

    assert "random_seed" == old["random_seed"]
    assert not {"seed", "prompt_table_extra_ids", "return_num_input_tokens"} & set(old)


def test_types_are_fixed_until_the_templates_leave_them_open() -> None:
    """Logits and features up to 0.16, the prompt table up to 0.19."""
    assert ("FP32", None) == (fixed_type("logits", "0.16.0"), fixed_type("logits", "0.17.0"))
    assert ("FP16", None) == (fixed_type("prompts", "0.19.0"), fixed_type("prompts", "0.20.0"))
    used = {one.data_type for model in MODELS for one in engine_tensors(model, "1.2.1")} & set(CHOICES)
    assert set(CHOICES) == used
