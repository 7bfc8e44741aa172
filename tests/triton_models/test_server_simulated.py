"""The model in a real tritonserver, with the simulated runtime behind it."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_simulated import word
from tests.support.rehearsal import make_repository, running, series, until
from trtllm_kit.errors import RequestFailed
from trtllm_kit.progress import Silent
from trtllm_kit.serve.client import Sampling, generate, stream
from trtllm_kit.serve.launch import server_command
from trtllm_kit.serve.process import Server
from trtllm_kit.serve.tritonserver import find_tritonserver
from trtllm_kit.upstream.triton import metric_families

pytestmark = pytest.mark.triton
MODEL = "tensorrt_llm"
KV, REQUESTS = "nv_trt_llm_kv_cache_block_metrics", "nv_trt_llm_request_metrics"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests of this file: 16 slots, 64 KV blocks of 32 tokens, 20 ms a token."""
    repository, plan = make_repository(tmp_path_factory.mktemp("simulated"))
    with running(repository, plan.serve) as started:
        yield started


@pytest.fixture(autouse=True)
def idle(server: Server) -> Iterator[None]:
    """Begin and end every test with an idle executor."""
    until(lambda: series(server)[REQUESTS]["active"] == 0)
    yield
    until(lambda: series(server)[REQUESTS]["active"] == 0)


def words(prompt: str, count: int) -> str:
    """Return the simulated answer."""
    return "".join(f" {word(prompt, position)}" for position in range(count))


def post(server: Server, verb: str, **body: Any) -> tuple[int, str]:
    """Post a JSON body; return status and text, also of an error."""
    request = urllib.request.Request(f"{server.urls.http}/v2/models/{MODEL}/{verb}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_whole_answer(server: Server) -> None:
    """The client gets the exact words, their number and the reason of the end."""
    answer = generate(server.urls.http, MODEL, "tell me more", Sampling(max_tokens=12))

    assert (words("tell me more", 12), "length") == (answer.text, answer.finish_reason)
    assert 0.24 <= answer.seconds < 1.0


def test_a_stream_comes_word_by_word_at_the_pace(server: Server) -> None:
    """Each word arrives on its own, in order, and as far apart as the clock says."""
    pieces = list(stream(server.urls.http, MODEL, "tell me more", Sampling(max_tokens=20)))

    gaps = [after.seconds - before.seconds for before, after in pairwise(pieces)]
    assert [f" {word('tell me more', position)}" for position in range(20)] == [piece.text for piece in pieces]
    assert ["length"] == [piece.finish_reason for piece in pieces if piece.finish_reason]
    assert 0.018 < sum(gaps) / len(gaps) < 0.03
    assert pieces[0].seconds < 0.3


def test_sixteen_streams_lose_no_word(server: Server) -> None:
    """Sixteen streams at once each get all their own words, and together they keep the pace."""
    prompts = [f"question number {number}" for number in range(16)]
    started = time.monotonic()

    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda prompt: "".join(
            piece.text for piece in stream(server.urls.http, MODEL, prompt, Sampling(max_tokens=50))
        ), prompts))  # fmt: skip

    assert [words(prompt, 50) for prompt in prompts] == texts
    assert 1.0 <= time.monotonic() - started < 3.0


def test_plain_json_as_curl_would_send_it(server: Server) -> None:
    """The documented tensors work as JSON scalars; without exclude the prompt comes first, numbers are numbers."""
    status, text = post(
        server,
        "generate",
        text_input="hello",
        sampling_param_max_tokens=2,
        sampling_param_return_perf_metrics=True,
        return_finish_reason=True,
        return_stop_reason=True,
        return_cumulative_logprob=True,
    )

    document = json.loads(text)
    assert (200, "hello" + words("hello", 2), "length") == (status, document["text_output"], document["finish_reason"])
    assert document["arrival_time_ns"] < document["first_token_time_ns"] < document["last_token_time_ns"]
    assert (1, 0.0, 0, 0.0) == (
        document["kv_cache_alloc_total_blocks"],
        document["kv_cache_hit_rate"],
        document["total_draft_tokens"],
        document["cumulative_logprob"],
    )


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ({"streaming": False}, 400, "text_input is required"),
        ({"text_input": "hi", "sampling_param_max_tokens": 0}, 400, "must be at least 1, got 0"),
        ({"text_input": "hi", "sampling_param_top_p": 1.5}, 400, "must be above 0 and at most 1, got 1.5"),
        ({"text_input": "hi", "sampling_param_max_tokens": 512}, 400, "is 513, above max_seq_len 512"),
        ({"stop": True, "id": "nobody"}, 400, "no running request has the id 'nobody'"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(server: Server, body: dict[str, Any], status: int, complaint: str) -> None:
    """Refusals reach an HTTP client as a status and a text, and the server goes on."""
    code, text = post(server, "generate", **body)

    assert status == code
    assert complaint in json.loads(text)["error"]


def test_the_client_reports_a_refusal(server: Server) -> None:
    """Both generate and stream raise RequestFailed with the model's own words."""
    for ask in (generate, lambda *rest: list(stream(*rest))):
        with pytest.raises(RequestFailed) as failed:
            ask(server.urls.http, MODEL, "hi", Sampling(max_tokens=600))
        assert "is 601, above max_seq_len 512" in failed.value.why


def test_going_away_frees_the_blocks(server: Server) -> None:
    """Closing a stream early cancels the request: its blocks are free long before its words are out."""
    pieces = stream(server.urls.http, MODEL, "tell me", Sampling(max_tokens=500))
    next(pieces)
    until(lambda: series(server)[KV]["used"] == 16)

    pieces.close()

    until(lambda: series(server)[KV]["used"] == 0, seconds=2)
    assert 64 == series(server)[KV]["free"]


def test_stop_cancels_the_request_of_that_id(server: Server) -> None:
    """A second request with stop and the same id ends the first as cancelled; the stop itself is answered."""
    with ThreadPoolExecutor(1) as pool:
        running_one = pool.submit(
            post, server, "generate", id="mine", text_input="tell me", sampling_param_max_tokens=500
        )
        until(lambda: series(server)[REQUESTS]["active"] == 1)
        status, text = post(server, "generate", id="mine", stop=True)
        cancelled_status, cancelled = running_one.result(5)

    assert (200, "cancelled") == (status, json.loads(text)["finish_reason"])
    assert cancelled_status >= 400
    assert "cancelled by a stop request" == json.loads(cancelled)["error"]


def settled(server: Server) -> dict[str, dict[str, float]]:
    """Read a page while requests generate and no renewal is under way: series are renewed one by one."""
    pages: list[dict[str, dict[str, float]]] = []

    def stands() -> bool:
        pages[:] = [*pages[-1:], series(server)]
        same = len(pages) > 1 and all(pages[0][name] == pages[1][name] for name in pages[0])
        now = pages[-1][REQUESTS]
        return same and now["active"] == now["scheduled"] > now["context"] == 0

    until(stands)
    return pages[1]


def test_metrics_show_every_family_with_its_values(server: Server) -> None:
    """While three requests run the page shows them, their blocks and every documented series."""
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(generate, server.urls.http, MODEL, "tell me", Sampling(max_tokens=62)) for _ in range(3)]
        until(lambda: series(server)[REQUESTS]["active"] == 3)
        busy = settled(server)
        for answer in answers:
            answer.result(10)
    time.sleep(0.3)
    after = series(server)

    assert {"active": 3, "max": 16, "scheduled": 3, "context": 0, "waiting": 0, "queued": 0} == busy[REQUESTS]
    assert {"max": 64, "free": 58, "used": 6, "tokens_per": 32, "reused": 0, "fraction": 6 / 64} == busy[KV]
    batcher = busy["nv_trt_llm_inflight_batcher_metrics"]
    assert (3, 0) == (batcher["generation_requests"], batcher["paused_requests"])
    assert (
        after["nv_trt_llm_general_metrics"]["iteration_counter"]
        > busy["nv_trt_llm_general_metrics"]["iteration_counter"]
    )
    assert abs(busy["nv_trt_llm_general_metrics"]["timestamp"] / 1e6 - time.time()) < 30
    for family in metric_families():
        values = {value.name for value in family.values}
        name = f"{family.name}_count" if family.kind == "histogram" else family.name
        assert values == set(after[name])


def test_lengths_are_counted_in_the_histograms(server: Server) -> None:
    """One answer of 3 and 12 tokens adds one to the counts and these to the sums."""
    before = series(server)
    generate(server.urls.http, MODEL, "one two three", Sampling(max_tokens=12))
    after = series(server)

    def grown(name: str, key: str) -> float:
        return after[name][key] - before[name][key]

    assert (1, 3) == (
        grown("nv_llm_input_token_len_count", "total_input_tokens"),
        grown("nv_llm_input_token_len_sum", "total_input_tokens"),
    )
    assert (1, 12) == (
        grown("nv_llm_output_token_len_count", "total_output_tokens"),
        grown("nv_llm_output_token_len_sum", "total_output_tokens"),
    )
    assert (0, 1) == (
        grown("nv_llm_output_token_len_bucket", "10 total_output_tokens"),
        grown("nv_llm_output_token_len_bucket", "50 total_output_tokens"),
    )


def test_requests_beyond_the_pool_wait_as_queued(server: Server) -> None:
    """Of five requests that take a quarter of the pool each, four are active and the fifth is queued until one ends."""
    streams = [stream(server.urls.http, MODEL, "tell me", Sampling(max_tokens=500)) for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        first = [pool.submit(next, pieces) for pieces in streams]
        until(lambda: series(server)[REQUESTS]["queued"] == 1)
        full = series(server)
        until(lambda: sum(one.done() for one in first) == 4)
        for pieces, one in zip(streams, first, strict=True):
            if one.done():
                pieces.close()
        assert [word("tell me", 0)] * 5 == [one.result(5).text.strip() for one in first]
    for pieces in streams:
        pieces.close()

    assert (4, 1.0, 0) == (full[REQUESTS]["active"], full[KV]["fraction"], full[KV]["free"])


def test_grpc_streams_too(server: Server) -> None:
    """A tritonclient gRPC stream gets the same words, and its last response is marked final."""
    grpc = pytest.importorskip("tritonclient.grpc")
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpc.InferenceServerClient(server.urls.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer(MODEL, _grpc_inputs(grpc, 7), enable_empty_final_response=True)
        text, final = "", False
        while not final:
            result, error = answers.get(timeout=5)
            assert error is None
            text += b"".join(result.as_numpy("text_output")).decode()
            final = result.get_response().parameters["triton_final_response"].bool_param
        client.stop_stream()

    assert words("tell me", 7) == text


def test_cancelling_a_grpc_stream_frees_the_blocks(server: Server) -> None:
    """stop_stream with cancel_requests ends the request in the executor."""
    grpc = pytest.importorskip("tritonclient.grpc")
    started = threading.Event()
    with grpc.InferenceServerClient(server.urls.grpc) as client:
        client.start_stream(callback=lambda result, error: started.set())
        client.async_stream_infer(MODEL, _grpc_inputs(grpc, 500))
        assert started.wait(5)
        client.stop_stream(cancel_requests=True)

        until(lambda: series(server)[KV]["used"] == 0, seconds=2)


def test_a_full_queue_is_told_and_auto_complete_changes_nothing(tmp_path: Path) -> None:
    """With one slot and one place to wait, the third request is refused as busy and the two others are answered.

    The server runs with Triton's configuration auto-completion on, which our complete config.pbtxt does not need.
    """
    repository, plan = make_repository(tmp_path, {"limits.max_batch_size": 1, "serve.token_seconds": 0.05})
    config = repository / MODEL / "config.pbtxt"
    config.write_text(config.read_text().replace('"1024"', '"1"'))
    command = server_command(
        repository, plan.serve, os.environ, find_tritonserver(os.environ), tmp_path / "trtkit-full"
    )
    argv = [word for word in command.argv if word != "--disable-auto-complete-config"]
    with Server(replace(command, argv=tuple(argv)), tmp_path / "log") as server, ThreadPoolExecutor(2) as pool:
        server.start()
        server.wait_ready(20, Silent())
        answers = []
        for number in (1, 2):
            answers.append(pool.submit(generate, server.urls.http, MODEL, "tell me", Sampling(max_tokens=20)))
            until(lambda number=number: sum(series(server)[REQUESTS][key] for key in ("active", "queued")) == number)  # type: ignore[misc]

        with pytest.raises(RequestFailed, match="queue full: 1 requests wait already") as failed:
            generate(server.urls.http, MODEL, "tell me", Sampling(max_tokens=1))

        assert [words("tell me", 20)] * 2 == [answer.result(10).text for answer in answers]
        assert "ask again later" in failed.value.hint


def _grpc_inputs(grpc: Any, tokens: int) -> list[Any]:
    values = {
        "text_input": (np.array([b"tell me"], dtype=object), "BYTES"),
        "streaming": (np.array([True]), "BOOL"),
        "sampling_param_max_tokens": (np.array([tokens], np.int32), "INT32"),
    }
    inputs = []
    for name, (array, kind) in values.items():
        inputs.append(grpc.InferInput(name, list(array.shape), kind))
        inputs[-1].set_data_from_numpy(array)
    return inputs
