"""``config.pbtxt`` as a typed object."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trtllm_kit.repository.model_config import InstanceGroup, ModelConfig, ModelTensor

TENSOR = {"name": "x", "data_type": "TYPE_FP32", "dims": (1,)}
CONFIG: dict[str, Any] = {"name": "m", "backend": "python", "decoupled": True, "inputs": (), "outputs": ()}


def test_it_is_frozen() -> None:
    """A configuration cannot be changed after it was made."""
    config = ModelConfig(**CONFIG)

    with pytest.raises(ValidationError):
        config.max_batch_size = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (ModelTensor, TENSOR | {"data_type": "FP32"}),
        (ModelTensor, TENSOR | {"name": ""}),
        (ModelTensor, TENSOR | {"name": "\ud800"}),
        (ModelTensor, TENSOR | {"shape": (1,)}),
        (ModelConfig, CONFIG | {"max_batch_size": -1}),
        (ModelConfig, CONFIG | {"parameters": {"key": "\udfff"}}),
        (InstanceGroup, {"count": 0}),
        (InstanceGroup, {"kind": "CPU"}),
    ],
)
def test_what_triton_has_no_word_for_is_refused(model: Any, values: dict[str, Any]) -> None:
    """Unknown types, empty names, impossible counts and text without a UTF-8 form are refused."""
    with pytest.raises(ValidationError):
        model(**values)
