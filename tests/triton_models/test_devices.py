"""The GPUs of one of several instances, and what its metrics are about."""

from __future__ import annotations

import json
import os

import pytest

from devices import devices_of, subject_of, use
from settings import BadSettings


def given(sets: str | None, count: int, number: int = 0) -> dict[str, str]:
    """What Triton gives an instance."""
    parameters = {} if sets is None else {"gpu_device_ids": {"string_value": sets}}
    config = {"parameters": parameters, "instance_group": [{"count": count, "kind": "KIND_CPU"}]}
    name = f"tensorrt_llm_0_{number}"
    return {"model_config": json.dumps(config), "model_name": "tensorrt_llm", "model_instance_name": name}


@pytest.mark.parametrize(
    ("sets", "count", "number", "devices"),
    [(None, 1, 0, ""), ("2,3", 1, 0, "2,3"), ("0,1;2,3", 2, 1, "2,3"), ("0;0", 2, 1, "0")],
)
def test_an_instance_has_the_set_of_its_number(sets: str | None, count: int, number: int, devices: str) -> None:
    """One instance without sets has all; two may share a GPU."""
    assert devices == devices_of(given(sets, count, number))


@pytest.mark.parametrize(
    ("sets", "count", "said"),
    [
        (None, 2, "0 sets for 2 instances"),
        ("0;1;2", 2, "3 sets for 2 instances"),
        ("0,;1", 2, "must be like 0,1;2,3"),
        ("GPU-1;GPU-2", 2, "must be like 0,1;2,3"),
    ],
)
def test_sets_that_do_not_fit_are_refused(sets: str | None, count: int, said: str) -> None:
    """As many sets as instances, each a list of numbers."""
    with pytest.raises(BadSettings, match=said):
        devices_of(given(sets, count))


@pytest.mark.parametrize(
    ("seen", "devices", "left"),
    [(None, "2,3", "2,3"), ("4,5,6,7", "2,3", "6,7"), ("GPU-a, GPU-b", "1", "GPU-b"), ("4,5", "", "4,5")],
)
def test_gpus_are_counted_among_those_the_server_sees(
    monkeypatch: pytest.MonkeyPatch, seen: str | None, devices: str, left: str
) -> None:
    """Their places in what the server was given, whatever they are called there."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    use(devices)
    assert left == os.environ["CUDA_VISIBLE_DEVICES"]


def test_a_gpu_that_the_server_does_not_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers compared are told."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(BadSettings, match="gpu_device_ids 2, and the server sees 2 GPUs"):
        use("2")


def test_metrics_are_about_the_model_or_one_of_its_instances() -> None:
    """Instances of one model would write over each other's numbers."""
    assert ("tensorrt_llm", "tensorrt_llm_0_1") == (subject_of(given(None, 1)), subject_of(given("0;1", 2, 1)))
