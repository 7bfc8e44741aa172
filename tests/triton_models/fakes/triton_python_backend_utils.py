"""A stand-in for the module that Triton's stub provides: strict about names, and it records what it is given."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
_TYPES = {
    "TYPE_STRING": np.object_, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64, "TYPE_FP32": np.float32,
    "TYPE_FP16": np.float16, "TYPE_BOOL": np.bool_, "TYPE_UINT8": np.uint8, "TYPE_UINT64": np.uint64,
}  # fmt: skip


class TritonModelException(Exception):
    """What the backend raises, and what a model raises to refuse to load."""


class TritonError:
    """An error in a response."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = UNKNOWN) -> None:
        self.message, self.code = _Text(message), code


class _Text(str):
    """The text of an error, which models ask for as a method and tests read."""

    def __call__(self) -> str:
        return str(self)


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

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Keep a response; nothing may follow the final one, which may be empty."""
        if self._final.is_set():
            raise AssertionError("a response after the final one")
        if self.broken:
            raise TritonModelException("the channel is gone")
        if response is not None:
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
        self.microseconds = 0
        self.sender = Sender()

    def get_response_sender(self) -> Sender:
        """Return the sender."""
        return self.sender

    def timeout(self) -> int:
        """Return the request's own time-out, microseconds; 0 is none."""
        return self.microseconds

    def parameters(self) -> str:
        """Return what is no tensor of a request, as JSON."""
        return "{}"

    def request_id(self) -> str:
        """Return the id."""
        return self.identity


class Said:
    """A response of another model, as a model that asks it sees it."""

    def __init__(self, response: InferenceResponse) -> None:
        self.outputs, self._error = response.outputs, response.error

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> Any:
        """Return the error."""
        return self._error


class InferenceRequest:
    """A request to another model: ``models`` has what answers, by name."""

    models: dict[str, Any] = {}  # noqa: RUF012

    def __init__(
        self, model_name: str, inputs: list[Tensor], requested_output_names: list[str], request_id: str = ""
    ) -> None:
        assert requested_output_names
        self._model = self.models[model_name]
        self._request = Request(request_id, **{one.name: one.array for one in inputs})
        assert len(self._request.inputs) == len(inputs), "an input is given twice"

    def exec(self, *, decoupled: bool = False) -> Any:
        """Ask; a decoupled model has any number of responses, which come one by one."""
        said = (Said(one) for one in self._model(self._request))
        return said if decoupled else next(said)


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

    def increment(self, value: float) -> None:
        assert value > 0
        self.value += value

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


def get_output_tensor_by_name(response: InferenceResponse | Said, name: str) -> Tensor | None:
    """Return an output, or None."""
    array = response.outputs.get(name)
    return None if array is None else Tensor(name, array)


def triton_string_to_numpy(name: str) -> Any:
    """Return the numpy type of a Triton type."""
    return _TYPES[name]
