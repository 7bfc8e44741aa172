"""``config.pbtxt`` as a typed object: what Triton is told about one model.

Field names follow Triton's ``ModelConfig`` protobuf. Only what trtkit writes is here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

DataType = Literal[
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",
    "TYPE_INT64", "TYPE_FP16", "TYPE_BF16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING",
]  # fmt: skip


def _encodable(text: str) -> str:
    """Refuse what has no UTF-8 form (lone surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} has no UTF-8 form") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelTensor(_Frozen):
    """One input or output."""

    name: Text = Field(min_length=1)
    data_type: DataType
    dims: tuple[int, ...]
    """Without the batch dimension; -1 is any length."""
    optional: bool = False
    """Inputs only: whether a request may leave it out."""
    ragged: bool = False
    """Inputs only: whether the requests of a batch may differ in shape."""
    scalar: bool = False
    """Inputs only: whether the model sees a number in place of a dimension of length 1."""


class InstanceGroup(_Frozen):
    """How many instances run, and on what."""

    count: int = Field(1, ge=1)
    kind: Literal["KIND_CPU", "KIND_GPU", "KIND_AUTO", "KIND_MODEL"] = "KIND_CPU"


class Batching(_Frozen):
    """How Triton gathers requests for a model."""

    preferred: tuple[int, ...] = ()
    queue_delay_microseconds: int = Field(0, ge=0)
    max_queue_size: int = Field(0, ge=0)
    """Requests that may wait; 0 for any number."""


class EnsembleStep(_Frozen):
    """One step of an ensemble."""

    model: Text = Field(min_length=1)
    inputs: dict[Text, Text]
    """The model's tensor -> the ensemble's."""
    outputs: dict[Text, Text]


class ModelConfig(_Frozen):
    """One model of a repository."""

    name: Text = Field(min_length=1)
    backend: Text = ""
    """What runs it; empty for an ensemble, whose models run."""
    max_batch_size: int = Field(0, ge=0)
    """0: requests are not batched by Triton. It is written even so, because Triton would otherwise guess one."""
    decoupled: bool = False
    """Whether a request may have any number of responses; streaming needs it."""
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    instance_group: InstanceGroup = InstanceGroup()
    batching: Batching | None = None
    parameters: dict[Text, Text] = {}
    steps: tuple[EnsembleStep, ...] = ()
    """Those of an ensemble; it has no instances, and follows its models in whether it is decoupled."""
