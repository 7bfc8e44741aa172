"""Formats that NVIDIA ModelOpt searches: what a plan says before anything is started, and what it must not say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plan.test_checks import findings
from tests.support.specs import hardware, llama, profile, qwen3_moe
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.searched import searched_problem
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat

SMALL = llama(2, 1024, 8, 8, 1024)
ENGINE = {"trtllm_version": "1.2.1", "toolchain": "trtllm-build"}


def said(model: ModelSpec, changes: dict[str, Any]) -> list[str]:
    """Return the messages of PF34."""
    return [finding.message for finding in findings(model, hardware(), changes) if finding.rule == "PF34"]


@pytest.mark.parametrize("exclude", [["lm_head"], ["lm_head", "*.experts.*"]])
@pytest.mark.parametrize("weights", ["int4_awq", "w4a8_awq", "int8_sq"])
def test_searched_formats_of_experts_are_told_by_the_plan(weights: PartFormat, exclude: list[str]) -> None:
    """Once, with the format: of AWQ in both layouts, of SmoothQuant in rank files, whatever the experts have."""
    asked = {"quantization.weights": weights, "quantization.exclude": exclude}
    for layout in [ENGINE] if weights == "int8_sq" else [{}, ENGINE]:
        (message,) = said(qwen3_moe(2), asked | layout)
        assert weights in message


def test_smoothquant_of_experts_is_made_in_the_unified_layout() -> None:
    """The plan does not speak of it, and neither does what convert asks."""
    assert [] == said(qwen3_moe(2), {"quantization.weights": "int8_sq"})
    assert searched_problem(qwen3_moe(2), Formats("int8_sq"), "unified_hf") is None
    problem = searched_problem(qwen3_moe(2), Formats("int8_sq"), "tensorrt_llm")
    assert problem is not None
    assert "Qwen3MoeForCausalLM" in problem.why


@pytest.mark.parametrize("weights", ["int4_awq", "w4a8_awq", "int8_sq", "fp8"])
@pytest.mark.parametrize("layout", [{}, ENGINE])
def test_a_dense_model_is_not_spoken_of(weights: str, layout: dict[str, str]) -> None:
    """ModelOpt exports it, in both layouts."""
    assert [] == said(SMALL, {"quantization.weights": weights} | layout)


def test_other_formats_of_experts_are_not_spoken_of() -> None:
    """FP8 of experts is made by trtkit itself."""
    assert [] == said(qwen3_moe(2), {"quantization.weights": "fp8"})
    assert searched_problem(qwen3_moe(2), Formats("fp8"), "unified_hf") is None


@pytest.mark.parametrize(
    ("weights", "changes", "planned"),
    [
        ("int4_wo", ENGINE, None),
        ("int4_wo", {}, 64),
        ("int4_awq", ENGINE, 64),
        ("w4a8_awq", {}, 64),
    ],
)
def test_a_group_size_is_planned_where_files_hold_groups(
    weights: str, changes: dict[str, str], planned: int | None
) -> None:
    """PF34 speaks of one that is asked for and means nothing, and of no other."""
    asked = {"quantization.weights": weights, "quantization.group_size": 64} | changes
    group_size = settle(SMALL, profile(asked), hardware()).quantization.group_size
    assert planned == (None if group_size is None else group_size.value)
    assert (planned is None) == any("groups have no meaning" in message for message in said(SMALL, asked))
    assert [] == said(SMALL, asked | {"quantization.group_size": "auto"})
