"""The TensorRT-LLM runtime over a strict stand-in for the package."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorrt_llm import LLM
from tensorrt_llm.executor import LoRARequest

from ask import Ask, Lora, Refused
from runtime_tensorrt_llm import TensorrtLlmRuntime, beam_width, sampling_parameters, statistics_from
from settings import read_settings
from trtllm_kit.resources import triton_models

from .test_pacer import Box
from .test_settings import PARAMETERS, YAML, arguments

RECORD = {
    "iter": 42,
    "iterLatencyMS": 7.0,
    "numActiveRequests": 5,
    "numQueuedRequests": 3,
    "maxNumActiveRequests": 64,
    "gpuMemUsage": 76665782272,
    "cpuMemUsage": 11,
    "pinnedMemUsage": 12,
    "kvCacheStats": {
        "maxNumBlocks": 100,
        "freeNumBlocks": 70,
        "usedNumBlocks": 30,
        "tokensPerBlock": 32,
        "reusedBlocks": 9,
    },
    "inflightBatchingStats": {
        "numScheduledRequests": 4,
        "numContextRequests": 1,
        "numGenRequests": 3,
        "numPausedRequests": 2,
        "numCtxTokens": 512,
        "microBatchId": 1,
    },
}


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., TensorrtLlmRuntime]]:
    """Give a function that loads the runtime; all are closed after the test."""
    loaded: list[TensorrtLlmRuntime] = []

    def make(parameters: dict[str, str] | None = None, **changes: Any) -> TensorrtLlmRuntime:
        given = PARAMETERS | {"runtime": "tensorrt_llm"} | (parameters or {})
        loaded.append(TensorrtLlmRuntime(read_settings(arguments(tmp_path, given, **changes))))
        return loaded[-1]

    yield make
    for runtime in loaded:
        if not LLM.last.shut:
            runtime.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true; fail when it does not become so."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def test_llm_gets_the_yaml_and_its_statistics_switched_on(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Every key of model.yaml but triton_config reaches LLM, and iteration statistics are on."""
    load()

    assert {
        "model": "checkpoint",
        "max_batch_size": 8,
        "enable_iter_perf_stats": True,
    } == LLM.last.arguments


def test_an_answer_streams(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Pieces joined are the whole text, and the end carries the counts."""
    box = Box()
    load().submit(Ask(prompt="prompt", max_tokens=5, streaming=True), box)

    finish = box.wait()

    assert ("abcde", "length", 6, 5) == (box.text, finish.reason, finish.prompt_tokens, finish.output_tokens)


def test_a_whole_answer(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Without streaming the text comes with the end."""
    box = Box()
    load().submit(Ask(prompt="p", max_tokens=3, cumulative_logprob=True, performance=True), box)

    finish = box.wait()

    cost = finish.performance
    assert ("abc", -0.75) == (box.text, finish.cumulative_logprob)
    assert (28_000, 76_735_000_400_000) == (cost.first_token_ns - cost.first_scheduled_ns, cost.last_token_ns)
    assert (4, 3, 1, 2, 0.25, 0.5, 2, 4) == (
        cost.kv_total_blocks,
        cost.kv_new_blocks,
        cost.kv_reused_blocks,
        cost.kv_missed_blocks,
        cost.kv_hit_rate,
        cost.acceptance_rate,
        cost.accepted_draft_tokens,
        cost.draft_tokens,
    )


def test_a_stop_text_is_held_back_until_the_engine_cuts_it(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """TensorRT-LLM streams the beginning of a stop text; the client never sees it."""
    runtime, box = load(), Box()
    runtime.submit(Ask(prompt="p", max_tokens=9, streaming=True, stop=("cde",)), box)

    finish = box.wait()

    assert ("ab", "stop", "cde") == (box.text, finish.reason, finish.stop_reason)


def test_half_characters_are_held_back(
    load: Callable[..., TensorrtLlmRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that ends in a replacement character is shown up to it, until the character is whole."""
    texts = ["a", "a\ufffd", "a\ufffd\ufffd", "a€", "a€b"]
    monkeypatch.setattr(LLM, "text_of", lambda _self, tokens: texts[tokens - 1])
    box = Box()
    load().submit(Ask(prompt="p", max_tokens=5, streaming=True), box)
    box.wait()

    assert "a€b" == box.text


def test_cancelling_aborts(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Cancelling a ticket aborts the engine's request and makes room."""
    runtime, box = load(), Box()
    LLM.last.step_seconds = 0.02
    ticket = runtime.submit(Ask(prompt="p", max_tokens=200, streaming=True), box)
    until(lambda: bool(box.text))

    ticket.cancel()

    until(lambda: LLM.last.requests[0].finished)
    assert LLM.last.requests[0].aborted
    until(lambda: runtime.statistics().active == 0 and not runtime._open)


def test_a_prompt_that_is_too_long_is_aborted_and_refused(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Prompt plus max_tokens above max_seq_len is refused, where the engine would cut the answer silently."""
    box = Box()
    load().submit(Ask(prompt="p" * 250, max_tokens=7), box)

    assert box.over.wait(5)
    assert "prompt of 250 tokens plus sampling_param_max_tokens 7 is 257, above max_seq_len 256" == str(box.failed)
    assert LLM.last.requests[0].aborted


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (ValueError("prompt too long"), "INVALID_ARG", "TensorRT-LLM refuses the request: prompt too long"),
        (RuntimeError("CUDA error"), "INTERNAL", "ended the request without an answer: RuntimeError('CUDA error')"),
    ],
)
def test_engine_errors_reach_the_client(
    load: Callable[..., TensorrtLlmRuntime], failure: Exception, status: str, text: str
) -> None:
    """A value the engine refuses is the client's fault, anything else the server's; both are told."""
    runtime, box = load(), Box()
    LLM.last.failure = failure
    runtime.submit(Ask(prompt="p", max_tokens=3), box)

    assert box.over.wait(5)
    assert box.failed is not None
    assert status == box.failed.status
    assert text in str(box.failed)


def test_a_full_server_refuses(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Above batch size plus queue size a request is refused as UNAVAILABLE."""
    runtime = load({"max_queue_size": "1", "max_batch_size": "1"})
    LLM.last.step_seconds = 0.05
    boxes = (Box(), Box())
    for box in boxes:
        runtime.submit(Ask(prompt="p", max_tokens=3, streaming=True), box)

    with pytest.raises(Refused, match="queue full: 2 requests are in the server already") as refused:
        runtime.submit(Ask(prompt="p"), Box())

    assert "UNAVAILABLE" == refused.value.status
    assert ["length"] * 2 == [box.wait().reason for box in boxes]


def test_statistics_are_upstreams_record() -> None:
    """Every number of an iteration record finds its field."""
    told = statistics_from(RECORD, 99)

    assert (5, 64, 4, 1, 3, 1) == (
        told.active, told.max_active, told.scheduled, told.context, told.queued, told.waiting
    )  # fmt: skip
    assert (100, 70, 30, 32, 9, 0.3) == (
        told.kv_max_blocks, told.kv_free_blocks, told.kv_used_blocks, told.tokens_per_block, told.kv_reused_blocks,
        told.kv_fraction,
    )  # fmt: skip
    assert (512, 3, 1, 2, 42, 99) == (
        told.context_tokens, told.generation_requests, told.micro_batch_id, told.paused, told.iteration,
        told.timestamp_us,
    )  # fmt: skip
    assert (11, 76665782272, 12) == (told.cpu_bytes, told.gpu_bytes, told.pinned_bytes)


def test_statistics_are_read_while_requests_run(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """The newest record counts while requests are open; an idle engine, which tells of nothing, counts none."""
    runtime, box = load(), Box()
    LLM.last.step_seconds = 0.05
    runtime.submit(Ask(prompt="p", max_tokens=20, streaming=True), box)
    LLM.last.records += [RECORD | {"iter": 41}, RECORD]

    until(lambda: runtime.statistics().iteration == 42)
    assert (5, 30) == (runtime.statistics().active, runtime.statistics().kv_used_blocks)
    box.wait()
    until(lambda: runtime.statistics().active == 0)
    assert (42, 30, 0) == (
        runtime.statistics().iteration, runtime.statistics().kv_used_blocks, runtime.statistics().queued
    )  # fmt: skip


def test_statistics_go_on_after_a_step_that_was_long(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """A silence within an answer, as of a long prompt's step, ends nobody's reading of the records after it."""
    runtime, box = load(), Box()
    LLM.last.step_seconds = 0.1
    runtime.submit(Ask(prompt="p", max_tokens=20, streaming=True), box)
    until(lambda: LLM.last.statistics is not None and LLM.last.statistics.done)
    LLM.last.records.append(RECORD | {"iter": 7})

    until(lambda: runtime.statistics().iteration == 7)
    assert runtime.statistics().active == 5
    box.wait()


def test_nobody_asks_for_statistics_before_the_first_request(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Upstream prints a warning for each such question, and the stand-in fails."""
    runtime = load()
    time.sleep(0.5)

    assert runtime.statistics() is not None


def test_cancelling_before_the_request_has_begun_aborts_it(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """A client that left while the request was handed over costs no batch slot."""
    runtime = load()
    blocked = threading.Event()
    runtime._loop.call_soon_threadsafe(blocked.wait, 2)
    ticket = runtime.submit(Ask(prompt="p", max_tokens=20, streaming=True), Box())
    ticket.cancel()
    blocked.set()

    until(lambda: LLM.last.requests and LLM.last.requests[-1].aborted)


def test_an_engine_that_tells_nothing_more_is_unknown(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """When its statistics cannot be read any more the state is unknown, not idle."""
    runtime = load()
    assert runtime.statistics() is not None
    LLM.last.records.append("not JSON")
    runtime.submit(Ask(prompt="p", max_tokens=1), Box())

    until(lambda: runtime.statistics() is None)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, {"top_k": 1}),
        ({"temperature": 0.0, "top_p": 0.9}, {"top_k": 1}),
        ({"temperature": 0.5, "top_p": 0.9, "best_of": 2}, {"temperature": 0.5, "top_p": 0.9, "best_of": 2}),
        ({"top_k": 4, "seed": 7, "stop": ("x",)}, {"top_k": 4, "seed": 7, "stop": ["x"]}),
        ({"performance": True, "cumulative_logprob": True}, {"top_k": 1, "return_perf_metrics": True, "logprobs": 1}),
    ],
)
def test_sampling_parameters(choice: dict[str, Any], expected: dict[str, Any]) -> None:
    """Only real names are used, and greedy is top_k 1 whatever else was asked."""
    given = vars(sampling_parameters(Ask(prompt="p", max_tokens=6, **choice)))
    defaults = {name: getattr(type(sampling_parameters(Ask(prompt="p")))(), name) for name in given}

    assert {"max_tokens": 6} | expected == {name: value for name, value in given.items() if value != defaults[name]}


@pytest.mark.parametrize("choice", [{}, {"temperature": 0.0}, {"best_of": 4}, {"top_k": 1}])
def test_an_engine_of_beams_is_asked_for_exactly_its_beams(choice: dict[str, Any]) -> None:
    """Upstream takes no other number, so a request that names none gets the engine's."""
    given = sampling_parameters(Ask(prompt="p", **choice), beams=4)

    assert (True, 4, 1, None) == (given.use_beam_search, given.best_of, given.n, given.top_k)


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"streaming": True}, "leave streaming out"),
        ({"temperature": 0.7}, "leave temperature, top_k and top_p out"),
        ({"top_p": 0.9}, "leave temperature, top_k and top_p out"),
        ({"best_of": 2}, "sampling_param_best_of must be that or left out"),
    ],
)
def test_what_beams_cannot_do_is_refused(
    load: Callable[..., TensorrtLlmRuntime], monkeypatch: pytest.MonkeyPatch, choice: dict[str, Any], why: str
) -> None:
    """The client hears it before the engine does, and nothing stays open."""
    monkeypatch.setitem(YAML, "max_beam_width", 4)
    runtime = load()

    with pytest.raises(Refused, match=why):
        runtime.submit(Ask(prompt="p", max_tokens=1, **choice), Box())
    assert not LLM.last.requests

    box = Box()
    runtime.submit(Ask(prompt="p", max_tokens=1), box)
    box.wait()
    assert (True, 4) == (LLM.last.requests[0].params.use_beam_search, LLM.last.requests[0].params.best_of)


@pytest.mark.parametrize("section", [{"max_beam_width": 4}, {"build_config": {"max_beam_width": 4}}])
def test_the_beams_of_the_engine_are_read_where_the_release_has_them(section: dict[str, Any]) -> None:
    """At the top from 1.2 on, in the build section before; none means one."""
    assert (4, 1) == (beam_width(section), beam_width({"build_config": None}))


def test_lora_is_passed_on(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """An adapter becomes a LoRARequest."""
    box = Box()
    load().submit(Ask(prompt="p", max_tokens=1, lora=Lora(3, "poet", "/a", "nemo")), box)
    box.wait()

    assert [LoRARequest("poet", 3, "/a", "nemo")] == LLM.last.lora


def test_closing_fails_what_runs(load: Callable[..., TensorrtLlmRuntime]) -> None:
    """Closing tells running requests and shuts the engine down."""
    runtime, box = load(), Box()
    LLM.last.step_seconds = 0.2
    runtime.submit(Ask(prompt="p", max_tokens=99, streaming=True), box)
    until(lambda: bool(LLM.last.requests))

    runtime.close()

    assert box.over.wait(1)
    assert "TensorRT-LLM ended the request without an answer: CancelledError()" == str(box.failed)
    assert LLM.last.shut


def test_it_imports_nothing_of_the_kit() -> None:
    """Production containers do not have trtllm_kit: rehearsals alone name it, inside functions that they call."""
    sources = {path.name: path.read_text() for path in (triton_models() / "llmapi").glob("*.py")}
    named = sorted(name for name, text in sources.items() if "from trtllm_kit" in text)
    at_once = [name for name, text in sources.items() if "\nfrom trtllm_kit" in text or "\nimport trtllm_kit" in text]

    assert ["pacer.py", "runtime_reference.py", "runtime_transformers.py", "timing.py"] == named
    assert [] == at_once
    assert not {"pacer", "faults"} & {line.split()[1] for line in sources["runtime_tensorrt_llm.py"].splitlines()
                                      if line.startswith("from ")}  # fmt: skip
