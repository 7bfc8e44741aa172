"""Tensors of the llmapi model and the metric families, against the recorded contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.upstream.triton import Tensor, llmapi_tensors, metric_families

UNDECLARED = {"sampling_param_logits_post_processor_name", "image_url"}
"""Recorded inputs that no released config.pbtxt declares."""


@pytest.fixture(name="contract")
def read_contract(shared: Path) -> dict[str, Any]:
    """Read the recorded llmapi section."""
    document = yaml.safe_load((shared / "contract" / "triton-contract.yaml").read_text("utf-8"))
    section: dict[str, Any] = document["llmapi"]
    return section


def as_recorded(tensor: Tensor) -> tuple[str, str, tuple[int, ...]]:
    """Put a tensor into the contract's words."""
    return tensor.name, tensor.data_type.removeprefix("TYPE_"), tensor.dims


@pytest.mark.parametrize(("side", "number"), [("inputs", 0), ("outputs", 1)])
def test_main_declares_the_recorded_tensors(contract: dict[str, Any], side: str, number: int) -> None:
    """Names, types and dims agree with the recorded tables."""
    wanted = {
        (entry["name"], entry["dtype"], tuple(entry["dims"]))
        for entry in contract[side]
        if entry["name"] not in UNDECLARED
    }
    assert wanted == {as_recorded(tensor) for tensor in llmapi_tensors("main")[number]}


def test_only_the_prompt_must_be_given() -> None:
    """Every input but text_input is optional."""
    inputs, _ = llmapi_tensors("1.2.1")
    assert ["text_input"] == [tensor.name for tensor in inputs if not tensor.optional]


def test_the_stream_switch_of_llmapi_is_called_streaming() -> None:
    """The legacy ensemble's name, stream, is not an input of llmapi."""
    names = {tensor.name for tensor in llmapi_tensors("1.2.1")[0]}
    assert "streaming" in names
    assert "stream" not in names


def test_a_release_has_the_tensors_of_its_time() -> None:
    """0.19 has no performance outputs, and adapters come after 1.2.1."""
    old, now, later = (llmapi_tensors(version) for version in ("0.19.0", "1.2.1", "main"))
    assert "stop" not in {tensor.name for tensor in old[0]}
    assert "acceptance_rate" not in {tensor.name for tensor in old[1]}
    assert "acceptance_rate" in {tensor.name for tensor in now[1]}
    assert {"lora_id", "lora_name", "lora_path", "lora_ckpt_source"} == {t.name for t in later[0]} - {
        t.name for t in now[0]
    }


def test_request_metrics_tell_waiting_from_queued() -> None:
    """Queued is trtkit's own series; waiting is upstream's and is not the queue."""
    family = next(family for family in metric_families() if family.name == "nv_trt_llm_request_metrics")
    values = {value.name: value for value in family.values}
    assert {"active", "max", "scheduled", "context", "waiting", "queued"} == set(values)
    assert ["queued"] == [name for name, value in values.items() if value.kit_only]


def test_the_kits_own_series_are_marked() -> None:
    """Queued requests, the heartbeat, drafts and times of tokens are all that trtkit's model adds to upstream's."""
    marked = [(family.label, value.name) for family in metric_families() for value in family.values if value.kit_only]
    assert [
        ("request_type", "queued"),
        ("general_type", "heartbeat"),
        ("speculation", "drafted"),
        ("speculation", "accepted"),
        ("response_metric_type", "time_to_first_token"),
        ("response_metric_type", "time_per_output_token"),
    ] == marked


def test_histograms_and_only_histograms_have_buckets() -> None:
    """A histogram needs bounds, a gauge must have none."""
    for family in metric_families():
        assert (family.kind == "histogram") == bool(family.buckets), family.name
