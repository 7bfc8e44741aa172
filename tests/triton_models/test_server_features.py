"""What the llmapi model does in a real tritonserver beyond text: time-outs, instances, what TensorRT-LLM is asked."""

from __future__ import annotations

import json
import queue
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli import trtkit
from tests.support.rehearsal import make_repository, running, series, until
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.errors import RequestFailed
from trtllm_kit.serve.client import Sampling, generate, stream
from trtllm_kit.serve.process import Server

pytestmark = pytest.mark.triton
MODEL = "tensorrt_llm"
INSTANCES = ("tensorrt_llm_0_0", "tensorrt_llm_0_1")
GENERAL, REQUESTS = "nv_trt_llm_general_metrics", "nv_trt_llm_request_metrics"


def post(server: Server, **body: Any) -> tuple[int, dict[str, Any]]:
    """Post to generate; return status and document, also of an error."""
    request = urllib.request.Request(f"{server.urls.http}/v2/models/{MODEL}/generate", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def by_subject(server: Server, family: str, kind: str) -> dict[str, float]:
    """Return the values of one series by what its label ``model`` says."""
    with urllib.request.urlopen(server.urls.metrics, timeout=5) as page:
        lines = [line for line in page.read().decode().splitlines() if line.startswith(f"{family}{{")]
    found = {}
    for line in lines:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if kind in labels.values():
            found[labels["model"]] = float(line.rpartition(" ")[2])
    return found


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A simulated server of 20 ms a token that answers two requests before it is ready."""
    repository, plan = make_repository(tmp_path_factory.mktemp("warm"), {"serve.warm_up_requests": 2})
    with running(repository, plan.serve) as started:
        yield started


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two simulated instances on two GPUs of a node, on the clock of such GPUs."""
    changes = {"hardware": "h200x8-700w", "parallelism.tensor": 1, "parallelism.replicas": 4, "serve.instances": 2,
               "limits.max_seq_len": 8192}  # fmt: skip
    root = tmp_path_factory.mktemp("two")
    write_tiny_model(root / "model", max_position_embeddings=8192)
    repository, plan = make_repository(root, changes, kv_blocks=1024)
    assert 'key: "gpu_device_ids" value { string_value: "0;1" }' in (repository / MODEL / "config.pbtxt").read_text()
    with running(repository, plan.serve) as started:
        yield started


def test_a_server_that_is_ready_has_answered_its_own_requests(warm: Server) -> None:
    """It made the steps of two answers of eight tokens, and no histogram counts them."""
    assert 16 <= series(warm)[GENERAL]["iteration_counter"]
    assert {0.0} == set(series(warm)["nv_llm_output_token_len_count"].values())


def test_instances_share_requests_and_tell_of_their_own(two: Server) -> None:
    """Two streams run on two engines; each has its numbers under its own name, and every answer is whole."""
    streams = [stream(two.urls.http, MODEL, "tell me", Sampling(max_tokens=4000)) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first = list(pool.map(next, streams))
        until(lambda: dict.fromkeys(INSTANCES, 1.0) == by_subject(two, REQUESTS, "active"))
        rest = list(pool.map(list, streams))

    texts = ["".join(piece.text for piece in (begun, *more)) for begun, more in zip(first, rest, strict=True)]
    assert [4000, 4000] == [len(text.split()) for text in texts]
    assert texts[0] == texts[1]


def test_check_health_judges_every_instance(two: Server) -> None:
    """Each is a subject of its own, and all are well."""
    ran = trtkit("check-health", "--repository", two.command.repository, "--json")

    assert 0 == ran.code, ran.out
    judged = {row["subject"] for row in ran.json["findings"] if row["rule"] == "kv-cache-usage"}
    assert {f"{name}/1" for name in INSTANCES} == judged


@pytest.mark.parametrize("asked", [{"timeout": 200_000}, {"timeout": "200000"}])
def test_an_answer_that_takes_too_long_is_ended(warm: Server, asked: dict[str, Any]) -> None:
    """500 tokens of 20 ms do not fit 0.2 s: the client is told within a moment, and the slot is free."""
    before = time.monotonic()
    status, document = post(warm, text_input="tell me", sampling_param_max_tokens=500, **asked)

    assert (400, "timed out: no whole answer within 0.2 s") == (status, document["error"])
    assert 2.0 > time.monotonic() - before
    until(lambda: series(warm)[REQUESTS]["active"] == 0)


def test_a_time_that_is_enough_or_no_time_changes_nothing(warm: Server) -> None:
    """An answer within its time is whole; what is no number of microseconds is refused."""
    status, document = post(
        warm, text_input="a", sampling_param_max_tokens=3, timeout=20_000_000, return_finish_reason=True
    )
    wrong = post(warm, text_input="a", timeout=-5)

    assert (200, "length") == (status, document["finish_reason"])
    assert (400, "timeout must be a whole number of microseconds, got -5") == (wrong[0], wrong[1]["error"])


def test_a_grpc_request_has_its_own_time_out(warm: Server) -> None:
    """The same by the request's field, which Triton's clients set; the status says that it may be asked again."""
    grpc = pytest.importorskip("tritonclient.grpc")
    answers: queue.Queue[Any] = queue.Queue()
    inputs = []
    for name, array, kind in (
        ("text_input", np.array([b"tell me"], dtype=object), "BYTES"),
        ("sampling_param_max_tokens", np.array([500], np.int32), "INT32"),
    ):
        inputs.append(grpc.InferInput(name, list(array.shape), kind))
        inputs[-1].set_data_from_numpy(array)
    with grpc.InferenceServerClient(warm.urls.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put(error))
        client.async_stream_infer(MODEL, inputs, timeout=200_000)
        error = answers.get(timeout=5)
        client.stop_stream()

    assert "timed out: no whole answer within 0.2 s" in str(error)


TOLD = """

import json as _json

_step, _generate = RequestOutput._step, LLM.generate_async


def _asked(self, inputs, sampling_params=None, lora_request=None, streaming=False):
    result = _generate(self, inputs, sampling_params, lora_request, streaming)
    result.asked = (inputs, sampling_params, lora_request)
    return result


def _echoing(self):
    _step(self)
    prompt, params, lora = self.asked
    told = {name: value for name, value in vars(params).items() if value not in (None, False)}
    if prompt == "echo":
        self.outputs[0].text = _json.dumps(told | {"lora": lora and vars(lora)})
    self._llm.step_seconds = 0.05 if prompt == "slowly" else 0.002
    self._llm.records.append({
        "iter": self._llm.iterations, "numActiveRequests": 1, "maxNumActiveRequests": 8, "gpuMemUsage": 1024,
        "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 25, "freeNumBlocks": 75, "tokensPerBlock": 32},
        "inflightBatchingStats": {"numScheduledRequests": 1, "numGenRequests": 1},
    })


RequestOutput._step, LLM.generate_async = _echoing, _asked
"""


@pytest.fixture(scope="module")
def of_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose runtime is TensorRT-LLM's, over the stand-in for the package in the model's own folder."""
    changes = {"trtllm_version": "main", "limits.max_batch_size": 1, "serve.warm_up_requests": 1}
    repository, plan = make_repository(tmp_path_factory.mktemp("llm"), changes)
    config = repository / MODEL / "config.pbtxt"
    text = config.read_text().replace('"simulated"', '"tensorrt_llm"').replace('"1024"', '"1"')
    config.write_text(text)
    package = repository / MODEL / "1" / "tensorrt_llm"
    shutil.copytree(Path(__file__).parent / "fakes" / "tensorrt_llm", package)
    (package / "__init__.py").write_text((package / "__init__.py").read_text() + TOLD)
    with running(repository, plan.serve) as started:
        yield started


def test_every_choice_of_a_request_reaches_tensorrt_llm(of_llm: Server) -> None:
    """Seed, penalties, sampling, stop words, probabilities, times and the adapter, each in its own place."""
    status, document = post(
        of_llm, text_input="echo", sampling_param_max_tokens=1, sampling_param_temperature=0.5,
        sampling_param_top_k=7, sampling_param_top_p=0.25, sampling_param_frequency_penalty=0.5,
        sampling_param_presence_penalty=-0.5, sampling_param_seed=2**53, sampling_param_best_of=2,
        sampling_param_stop=["one", "two"], sampling_param_return_perf_metrics=True, return_cumulative_logprob=True,
        lora_id=3, lora_name="tone", lora_path="/adapters/tone", sampling_param_exclude_input_from_output=True,
    )  # fmt: skip

    assert 200 == status, document
    asked = json.loads(document["text_output"])
    assert {"lora_name": "tone", "lora_int_id": 3, "lora_path": "/adapters/tone", "lora_ckpt_source": "hf"} == asked[
        "lora"
    ]
    assert {
        "max_tokens": 1, "temperature": 0.5, "top_k": 7, "top_p": 0.25, "frequency_penalty": 0.5,
        "presence_penalty": -0.5, "seed": 2**53, "best_of": 2, "stop": ["one", "two"], "return_perf_metrics": True,
        "logprobs": 1,
    }.items() <= asked.items()  # fmt: skip


def test_what_tensorrt_llm_tells_of_a_request_comes_as_numbers(of_llm: Server) -> None:
    """Times, blocks, shares and drafts are JSON numbers, and the probability is the sum."""
    _, document = post(
        of_llm,
        text_input="a",
        sampling_param_max_tokens=4,
        sampling_param_return_perf_metrics=True,
        return_cumulative_logprob=True,
    )

    assert (-1.0, 4, 0.25, 0.5, 2) == tuple(
        document[name]
        for name in (
            "cumulative_logprob",
            "kv_cache_alloc_total_blocks",
            "kv_cache_hit_rate",
            "acceptance_rate",
            "total_accepted_draft_tokens",
        )
    )
    assert 29_000 == document["first_token_time_ns"] - document["arrival_time_ns"]


def test_the_executors_statistics_are_on_the_metrics_page(of_llm: Server) -> None:
    """While a request runs: blocks, requests, memory and a counter that moves; idle: no requests."""
    pieces = stream(of_llm.urls.http, MODEL, "slowly", Sampling(max_tokens=26))
    next(pieces)
    until(lambda: series(of_llm)[REQUESTS]["active"] == 1)
    busy = series(of_llm)
    pieces.close()
    until(lambda: series(of_llm)[REQUESTS]["active"] == 0)

    assert {"max": 100, "used": 25, "free": 75, "fraction": 0.25}.items() <= busy[
        "nv_trt_llm_kv_cache_block_metrics"
    ].items()
    assert (1, 8, 1024) == (
        busy[REQUESTS]["scheduled"],
        busy[REQUESTS]["max"],
        busy["nv_trt_llm_runtime_memory_metrics"]["gpu"],
    )
    assert busy[GENERAL]["iteration_counter"] > 8


def test_a_full_server_says_so(of_llm: Server) -> None:
    """One slot and one place to wait: the third request is refused with a number, and the others are answered."""
    with ThreadPoolExecutor(2) as pool:
        streams = [stream(of_llm.urls.http, MODEL, "slowly", Sampling(max_tokens=20)) for _ in range(2)]
        begun = list(pool.map(next, streams))
        with pytest.raises(RequestFailed, match="queue full: 2 requests are in the server already"):
            generate(of_llm.urls.http, MODEL, "slowly", Sampling(max_tokens=1))
        rest = list(pool.map(list, streams))

    assert ["abcdefghijklmnopqrst"] * 2 == [
        first.text + "".join(piece.text for piece in pieces) for first, pieces in zip(begun, rest, strict=True)
    ]


def test_a_stop_request_and_a_stop_text_end_its_answers(of_llm: Server) -> None:
    """The one by the id, as cancelled; the other before the text, whose name is told."""
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(post, of_llm, id="mine", text_input="slowly", sampling_param_max_tokens=26)
        until(lambda: post(of_llm, id="mine", stop=True)[0] == 200)
        cancelled = slow.result(5)
    _, cut = post(
        of_llm,
        text_input="a",
        sampling_param_max_tokens=26,
        sampling_param_stop=["def"],
        return_stop_reason=True,
        sampling_param_exclude_input_from_output=True,
    )

    assert (400, "cancelled by a stop request") == (cancelled[0], cancelled[1]["error"])
    assert ("abc", "def") == (cut["text_output"], cut["stop_reason"])
