"""The Triton model over a stand-in for the stub: what a request gets back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import Request

from ask import BUSY, CANCELLED, STOPPED, Refused
from model import TritonPythonModel
from runtime_simulated import word
from settings import BadSettings
from warm_up import warm_up

from .test_settings import PARAMETERS, arguments

TYPES = {
    "text_output": "TYPE_STRING",
    "finish_reason": "TYPE_STRING",
    "stop_reason": "TYPE_STRING",
    "cumulative_logprob": "TYPE_FP32",
    "kv_cache_alloc_total_blocks": "TYPE_INT32",
    "kv_cache_hit_rate": "TYPE_FP32",
    "arrival_time_ns": "TYPE_INT64",
    "first_token_time_ns": "TYPE_INT64",
}


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., TritonPythonModel]]:
    """Give a function that loads the model with a simulated runtime; all are unloaded after the test."""
    loaded: list[TritonPythonModel] = []

    def make(types: dict[str, str] = TYPES, **parameters: str) -> TritonPythonModel:
        model = TritonPythonModel()
        output = [{"name": name, "data_type": kind} for name, kind in types.items()]
        model.initialize(arguments(tmp_path, PARAMETERS | parameters, output=output))
        loaded.append(model)
        return model

    yield make
    for model in loaded:
        model.finalize()


def ask(prompt: str = "tell me", identity: str = "", **inputs: Any) -> Request:
    """Make a request with a prompt."""
    arrays = {name: np.array([value]) for name, value in inputs.items()}
    return Request(identity, text_input=np.array([prompt.encode()], dtype=object), **arrays)


def words(prompt: str, count: int) -> str:
    """Return the simulated answer."""
    return "".join(f" {word(prompt, position)}" for position in range(count))


def test_a_whole_answer_is_one_response(load: Callable[..., TritonPythonModel]) -> None:
    """Without streaming there is exactly one response, and it begins with the prompt as upstream's does."""
    request = ask(sampling_param_max_tokens=3)
    load().execute([request])

    assert ["tell me" + words("tell me", 3)] == [r.outputs["text_output"][0].decode() for r in request.sender.wait()]
    assert ["text_output"] == list(request.sender.responses[0].outputs)


def test_the_prompt_can_be_left_out(load: Callable[..., TritonPythonModel]) -> None:
    """sampling_param_exclude_input_from_output leaves the prompt out of a whole answer."""
    request = ask(sampling_param_max_tokens=3, sampling_param_exclude_input_from_output=True)
    load().execute([request])

    assert words("tell me", 3) == request.sender.text()


def test_a_stream_is_a_response_a_token(load: Callable[..., TritonPythonModel]) -> None:
    """A stream sends what is new, one word a response, and marks the last one final."""
    request = ask(sampling_param_max_tokens=4, streaming=True)
    load().execute([request])

    assert words("tell me", 4) == request.sender.text()
    assert 4 == len(request.sender.responses)


def test_outputs_have_their_declared_types(load: Callable[..., TritonPythonModel]) -> None:
    """Numbers are numbers, not strings, and only what was asked for and is declared is sent."""
    flags = ("return_finish_reason", "return_stop_reason", "return_cumulative_logprob")
    request = ask(sampling_param_max_tokens=3, sampling_param_return_perf_metrics=True, **dict.fromkeys(flags, True))
    load().execute([request])

    outputs = request.sender.wait()[0].outputs

    assert set(TYPES) == set(outputs)
    assert (b"length", b"") == (outputs["finish_reason"][0], outputs["stop_reason"][0])
    assert (np.float32, np.int32, np.int64) == (
        outputs["cumulative_logprob"].dtype,
        outputs["kv_cache_alloc_total_blocks"].dtype,
        outputs["arrival_time_ns"].dtype,
    )
    assert outputs["arrival_time_ns"][0] < outputs["first_token_time_ns"][0]


def test_a_stop_text_ends_a_stream(load: Callable[..., TritonPythonModel]) -> None:
    """A stop text that begins within a word ends the stream before it and is named."""
    stop = words("tell me", 2)[-3:] + words("tell me", 3)[len(words("tell me", 2)) :][:2]
    request = ask(sampling_param_max_tokens=9, streaming=True, return_stop_reason=True, return_finish_reason=True)
    request.inputs["sampling_param_stop"] = pb_utils.Tensor("", np.array([stop.encode()], dtype=object))
    load().execute([request])

    last = request.sender.wait()[-1].outputs

    assert words("tell me", 2)[:-3] == request.sender.text()
    assert (b"stop", stop.encode()) == (last["finish_reason"][0], last["stop_reason"][0])


@pytest.mark.parametrize(
    ("inputs", "code", "message"),
    [
        ({"sampling_param_max_tokens": 0}, "INVALID_ARG", "sampling_param_max_tokens must be at least 1, got 0"),
        ({"sampling_param_max_tokens": 999}, "INVALID_ARG", "above max_seq_len 256"),
        ({"sampling_param_best_of": 2}, "INVALID_ARG", "neither sampling_param_best_of above 1 nor LoRA"),
        ({"stop": True}, "INVALID_ARG", "stop needs the id of the running request"),
    ],
)
def test_refusals_are_errors(
    load: Callable[..., TritonPythonModel], inputs: dict[str, Any], code: str, message: str
) -> None:
    """A bad request gets one final error response with Triton's status and a text."""
    request = ask(**inputs)
    load().execute([request])

    (response,) = request.sender.wait()

    assert message in response.error.message
    assert getattr(pb_utils.TritonError, code) == response.error.code


def test_a_missing_prompt_is_refused(load: Callable[..., TritonPythonModel]) -> None:
    """Triton lets a request without text_input through; the model does not."""
    request = Request(streaming=np.array([True]))
    load().execute([request])

    assert "text_input is required" in request.sender.wait()[0].error.message


def test_stop_by_id(load: Callable[..., TritonPythonModel]) -> None:
    """A stop request cancels the running request of its id, is answered itself, and frees the blocks."""
    model = load()
    running = ask(identity="mine", sampling_param_max_tokens=200, streaming=True)
    other = ask(identity="other", sampling_param_max_tokens=3)
    stop = Request("mine", stop=np.array([True]))
    model.execute([running, other, stop])

    assert pb_utils.TritonError.CANCELLED == running.sender.wait()[-1].error.code
    assert b"cancelled" == stop.sender.wait()[0].outputs["finish_reason"][0]
    assert "tell me" + words("tell me", 3) == other.sender.text()
    again = Request("mine", stop=np.array([True]))
    model.execute([again])
    assert "no running request has the id 'mine'" == again.sender.wait()[0].error.message


def test_a_client_that_goes_away_frees_its_request(load: Callable[..., TritonPythonModel]) -> None:
    """When Triton says the client is gone, the request ends as cancelled and the executor is idle again."""
    model = load()
    request = ask(sampling_param_max_tokens=200)
    model.execute([request])
    request.sender.cancelled = True

    assert "cancelled by the client" == request.sender.wait()[0].error.message
    deadline = time.monotonic() + 2
    while model._runtime.statistics().active and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 0 == model._runtime.statistics().kv_used_blocks


def test_a_broken_channel_frees_its_request(load: Callable[..., TritonPythonModel]) -> None:
    """When a piece cannot be sent, the request is cancelled and the others go on."""
    model = load()
    broken, whole = ask(sampling_param_max_tokens=200, streaming=True), ask(sampling_param_max_tokens=4)
    broken.sender.broken = True
    model.execute([broken, whole])

    assert "tell me" + words("tell me", 4) == whole.sender.text()
    deadline = time.monotonic() + 2
    while model._runtime.statistics().active and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 0 == model._runtime.statistics().active


def test_a_slow_channel_gets_pieces_together(load: Callable[..., TritonPythonModel]) -> None:
    """Words that pile up while a send takes long travel as one response; none is lost, and the pace holds."""
    model = load(token_seconds="0.005")
    request = ask(sampling_param_max_tokens=40, streaming=True)
    send = request.sender.send

    def slow(response: Any, flags: int = 0) -> None:
        time.sleep(0.03)
        send(response, flags)

    request.sender.send = slow
    started = time.monotonic()
    model.execute([request])

    assert words("tell me", 40) == request.sender.text()
    assert len(request.sender.responses) < 15
    assert time.monotonic() - started < 1.0


def test_an_answer_that_is_late_is_ended_and_frees_its_request(load: Callable[..., TritonPythonModel]) -> None:
    """A request's own time-out, in microseconds: what came before it is sent, then the reason."""
    model = load()
    request = ask(streaming=True, sampling_param_max_tokens=np.int32(200))
    request.microseconds = 150_000
    model.execute([request])
    responses = request.sender.wait()

    assert "timed out: no whole answer within 0.15 s" == responses[-1].error.message()
    assert 1 < len(responses) < 200
    assert 0 == model._runtime.statistics().active


@pytest.mark.parametrize(("count", "steps"), [("0", 0), ("3", 24)])
def test_warm_up_requests_are_answered_before_the_first(
    load: Callable[..., TritonPythonModel], count: str, steps: int
) -> None:
    """Each has 8 tokens, one a step; nothing of them is left."""
    model = load(warm_up_requests=count)
    statistics = model._runtime.statistics()

    assert (steps, 0) == (statistics.iteration, statistics.active)


@pytest.mark.parametrize(
    "limits",
    [
        {"kv_cache_blocks": "1", "tokens_per_block": "1"},
        {"max_seq_len": "2"},
        {"max_num_tokens": "1", "chunked_prefill": "0"},
    ],
)
def test_limits_too_small_for_a_warm_up_load_without_one(
    load: Callable[..., TritonPythonModel], limits: dict[str, str]
) -> None:
    """A legal model is served, whatever a prompt of two words needs: its clients ask for less."""
    assert load(warm_up_requests="2", **limits)


class Broken:
    """A runtime that takes requests and ends them with a status."""

    closed = False

    def __init__(self, status: str) -> None:
        self.status = status

    def submit(self, _ask: Any, sink: Any) -> None:
        """Fail it later, as from another thread."""
        threading.Timer(0.01, sink.fail, [Refused("the engine is lost", self.status)]).start()

    def close(self) -> None:
        """Remember it."""
        self.closed = True


@pytest.mark.parametrize("status", [BUSY, CANCELLED, STOPPED])
def test_a_warm_up_that_fails_is_no_model(status: str) -> None:
    """Whatever went wrong but the request itself: told with the number of the request, and the runtime is closed."""
    runtime: Any = Broken(status)
    with pytest.raises(BadSettings, match="warm-up request 1 of 2 failed: the engine is lost"):
        warm_up(runtime, 2, 512)
    assert runtime.closed


def test_finalize_fails_what_still_runs(load: Callable[..., TritonPythonModel]) -> None:
    """Unloading tells running requests and ends every thread the model started."""
    before = set(threading.enumerate())
    model = load()
    request = ask(sampling_param_max_tokens=200, streaming=True)
    model.execute([request])

    model.finalize()

    assert "the server is shutting down" == request.sender.wait()[-1].error.message
    assert ["lifeline"] == [thread.name for thread in set(threading.enumerate()) - before]
    model.finalize = lambda: None  # type: ignore[method-assign]


def test_a_loaded_model_beats_while_it_is_idle(load: Callable[..., TritonPythonModel]) -> None:
    """The heartbeat moves a few times a second without any request, and stands still once the model is unloaded."""

    def beat() -> float:
        (value,) = (
            metric.value
            for (_, labels), metric in pb_utils.MetricFamily.page.items()
            if ("general_type", "heartbeat") in labels
            and ("model", "tensorrt_llm") in labels
            and ("version", "1") in labels
        )
        return value

    model = load()
    time.sleep(0.1)
    first = beat()
    time.sleep(0.5)
    assert 0.15 < beat() - first < 0.9
    assert abs(time.time() - beat()) < 0.5

    model.finalize()
    model.finalize = lambda: None  # type: ignore[method-assign]
    last = beat()
    time.sleep(0.3)
    assert last == beat()


def test_what_cannot_be_served_does_not_load(tmp_path: Path) -> None:
    """A repository without the decoupled policy is refused with the line to write."""
    model = TritonPythonModel()

    with pytest.raises(pb_utils.TritonModelException, match="must hold model_transaction_policy"):
        model.initialize(arguments(tmp_path, model_transaction_policy={}))
