"""Writing ``config.pbtxt``, read back by the protobuf that Triton itself uses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.repository.model_config import InstanceGroup, ModelConfig, ModelTensor
from trtllm_kit.repository.pbtxt import quote, write_pbtxt

text_format = pytest.importorskip("google.protobuf.text_format")
model_config_pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
HOSTILE = '" } parameters { key: "x" value { string_value: "\\\n\t\0é你\u2028\x1b'


def parse(text: str) -> Any:
    """Read a config as Triton does; unknown fields and wrong structure are errors."""
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def config(**changes: Any) -> ModelConfig:
    """Make a small configuration."""
    values: dict[str, Any] = {
        "name": "tensorrt_llm",
        "backend": "python",
        "decoupled": True,
        "inputs": (
            ModelTensor(name="text_input", data_type="TYPE_STRING", dims=(-1,)),
            ModelTensor(name="streaming", data_type="TYPE_BOOL", dims=(1,), optional=True),
        ),
        "outputs": (ModelTensor(name="text_output", data_type="TYPE_STRING", dims=(-1, 4)),),
        "instance_group": InstanceGroup(count=2, kind="KIND_GPU"),
        "parameters": {"runtime": "simulated", "empty": ""},
    }
    return ModelConfig(**values | changes)


def test_every_field_arrives() -> None:
    """What was written is what Triton's protobuf reads."""
    read = parse(write_pbtxt(config()))

    assert ("tensorrt_llm", "python", 0, True) == (
        read.name,
        read.backend,
        read.max_batch_size,
        read.model_transaction_policy.decoupled,
    )
    assert [("text_input", [-1], False), ("streaming", [1], True)] == [
        (one.name, list(one.dims), one.optional) for one in read.input
    ]
    assert ["TYPE_STRING", "TYPE_BOOL"] == [model_config_pb2.DataType.Name(one.data_type) for one in read.input]
    assert [("text_output", [-1, 4])] == [(one.name, list(one.dims)) for one in read.output]
    assert [(2, "KIND_GPU")] == [
        (group.count, model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind)) for group in read.instance_group
    ]
    assert {"runtime": "simulated", "empty": ""} == {key: one.string_value for key, one in read.parameters.items()}


def test_a_batch_size_of_0_is_written() -> None:
    """Protobuf's own writer would drop it, and Triton would then guess one."""
    assert "\nmax_batch_size: 0\n" in write_pbtxt(config())


@given(TEXT, TEXT, TEXT)
def test_no_string_changes_the_structure(name: str, key: str, value: str) -> None:
    """Whatever a name, key or value holds, it comes back as it was and nothing else does."""
    read = parse(write_pbtxt(config(name=name, parameters={key: value})))

    assert name == read.name
    assert {key: value} == {one: read.parameters[one].string_value for one in read.parameters}
    assert 2 == len(read.input)


def test_a_hostile_string_stays_a_string() -> None:
    """Quotes, braces, backslashes, control characters and line separators are data."""
    read = parse(write_pbtxt(config(parameters={HOSTILE: HOSTILE})))

    assert {HOSTILE: HOSTILE} == {one: read.parameters[one].string_value for one in read.parameters}
    assert 1 == len(quote(HOSTILE).splitlines())


@given(
    st.lists(st.tuples(TEXT, st.sampled_from(["TYPE_INT32", "TYPE_BF16"]), st.lists(st.integers(-1, 9), max_size=3)))
)
def test_any_tensors_arrive_in_order(tensors: list[tuple[str, str, list[int]]]) -> None:
    """Tensors of any name and shape come back in the order they were declared."""
    outputs = tuple(ModelTensor(name=name, data_type=kind, dims=tuple(dims)) for name, kind, dims in tensors)  # type: ignore[arg-type]

    read = parse(write_pbtxt(config(outputs=outputs)))

    found = [(one.name, model_config_pb2.DataType.Name(one.data_type), list(one.dims)) for one in read.output]
    assert tensors == found
