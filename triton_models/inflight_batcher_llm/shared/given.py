"""What Triton gives a model: parameters of ``config.pbtxt``, and the tensors of a request, checked.

Triton checks declared types and the number of inputs only; what is missing or of another shape is told here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

_TRUE, _FALSE = frozenset({"true", "1", "t", "y", "yes"}), frozenset({"false", "0", "f", "n", "no"})


class Refused(Exception):
    """A request cannot be served; the text is for the client."""


def parameters_of(args: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that have a value; an unfilled placeholder of a template is none."""
    given = json.loads(args["model_config"]).get("parameters", {})
    texts = {key: value["string_value"] for key, value in given.items()}
    return {key: text for key, text in texts.items() if text and not text.startswith("${")}


def outputs_of(args: Mapping[str, str]) -> dict[str, Any]:
    """Return the numpy type of every output that ``config.pbtxt`` declares; None for types that numpy lacks."""
    declared = {one["name"]: one["data_type"] for one in json.loads(args["model_config"])["output"]}
    return {
        name: None if kind == "TYPE_BF16" else pb_utils.triton_string_to_numpy(kind) for name, kind in declared.items()
    }


def inputs_of(args: Mapping[str, str]) -> frozenset[str]:
    """Return the inputs that ``config.pbtxt`` declares."""
    return frozenset(one["name"] for one in json.loads(args["model_config"])["input"])


def flag_of(parameters: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Return a yes or no; raises ``TritonModelException`` for another word."""
    text = parameters.get(key, "").lower()
    if text and text not in _TRUE | _FALSE:
        raise pb_utils.TritonModelException(f"config.pbtxt: parameter {key} must be true or false, got {text!r}")
    return text in _TRUE if text else default


def array_of(request: Any, name: str) -> Any:
    """Return an input as a numpy array with its batch dimension; None when the request does not have it."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def texts_of(request: Any, name: str) -> list[list[str]] | None:
    """Return the texts of an input, one list a row of the batch; raises ``Refused`` for bytes that are no text."""
    array = array_of(request, name)
    if array is None:
        return None
    rows = array.reshape(array.shape[0] if array.ndim else 1, -1)
    return [[_text(name, one) for one in row] for row in rows]


def number_of(request: Any, name: str, default: Any = None) -> Any:
    """Return the first value of an input, or the default."""
    array = array_of(request, name)
    return default if array is None or array.size == 0 else array.reshape(-1)[0].item()


def error_of(error: Exception) -> Any:
    """Return the response that tells a client what was wrong with its request, or with the server."""
    code = pb_utils.TritonError.INVALID_ARG if isinstance(error, Refused) else pb_utils.TritonError.INTERNAL
    text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))


def tensor_of(name: str, values: Any, kind: Any) -> Any:
    """Return an output or input tensor of that numpy type."""
    return pb_utils.Tensor(name, np.asarray(values, dtype=kind))


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8: byte {error.start} cannot be decoded") from None
