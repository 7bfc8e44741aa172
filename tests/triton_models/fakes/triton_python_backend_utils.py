"""A stand-in for the module that Triton's stub provides: strict about names, and it records what it is given."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
_TYPES = {"TYPE_STRING": np.object_, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64, "TYPE_FP32": np.float32}


class TritonModelException(Exception):
    """What the backend raises, and what a model raises to refuse to load."""


class TritonError:
    """An error in a response."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = UNKNOWN) -> None:
        self.message, self.code = message, code


class Tensor:
    """A named array."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> Any:
        """Return the array."""
        return self.array


class InferenceResponse:
    """One response: outputs or an error."""

    def __init__(self, output_tensors: list[Tensor] | None = None, error: TritonError | None = None) -> None:
        self.outputs = {tensor.name: tensor.array for tensor in output_tensors or []}
        self.error = error


class Sender:
    """Records responses; ``wait`` blocks until the final one."""

    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []
        self.cancelled = False
        self.broken = False
        self._final = threading.Event()

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        """Keep a response; nothing may follow the final one."""
        if self._final.is_set():
            raise AssertionError("a response after the final one")
        if self.broken:
            raise TritonModelException("the channel is gone")
        self.responses.append(response)
        if flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL:
            self._final.set()

    def is_cancelled(self) -> bool:
        """Say whether the client has gone; forbidden after the final response, as in Triton."""
        if self._final.is_set():
            raise AssertionError("is_cancelled after the final response")
        return self.cancelled

    def wait(self, seconds: float = 5.0) -> list[InferenceResponse]:
        """Return all responses once the final one is there."""
        assert self._final.wait(seconds), "no final response"
        return self.responses

    def text(self) -> str:
        """Return the text of all responses."""
        return b"".join(response.outputs["text_output"][0] for response in self.wait()).decode()


class Request:
    """An inference request with numpy inputs."""

    def __init__(self, identity: str = "", **inputs: Any) -> None:
        self.inputs = {name: Tensor(name, array) for name, array in inputs.items()}
        self.identity = identity
        self.sender = Sender()

    def get_response_sender(self) -> Sender:
        """Return the sender."""
        return self.sender

    def request_id(self) -> str:
        """Return the id."""
        return self.identity


class Logger:
    """Swallows log lines."""

    @staticmethod
    def log_warn(message: str) -> None:
        """Take a warning."""


class _Metric:
    def __init__(self) -> None:
        self.value = 0.0
        self.observed: list[float] = []

    def set(self, value: float) -> None:
        self.value = value

    def observe(self, value: float) -> None:
        self.observed.append(value)


class MetricFamily:
    """A family; ``page`` holds every series of the process by family name and labels."""

    COUNTER, GAUGE, HISTOGRAM = range(3)
    page: dict[tuple[str, frozenset[tuple[str, str]]], _Metric] = {}  # noqa: RUF012
    kinds: dict[str, int] = {}  # noqa: RUF012
    buckets: dict[str, list[float]] = {}  # noqa: RUF012

    def __init__(self, name: str, description: str, kind: int) -> None:
        assert description
        self.name = name
        self.kinds[name] = kind

    def Metric(self, labels: dict[str, str], buckets: list[float] | None = None) -> _Metric:
        """Make a series."""
        assert (buckets is not None) == (self.kinds[self.name] == self.HISTOGRAM)
        if buckets is not None:
            self.buckets[self.name] = buckets
        metric = self.page[self.name, frozenset(labels.items())] = _Metric()
        return metric


def get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
    """Return an input, or None."""
    return request.inputs.get(name)


def triton_string_to_numpy(name: str) -> Any:
    """Return the numpy type of a Triton type."""
    return _TYPES[name]
