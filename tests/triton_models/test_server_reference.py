"""The model in a real tritonserver, with the reference runtime over converted checkpoints behind it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.rehearsal import make_repository, running, series, until
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
from trtllm_kit.reference.sampling import Sampler
from trtllm_kit.serve.client import Sampling, generate, stream
from trtllm_kit.serve.process import Server

pytestmark = pytest.mark.triton
MODEL = "tensorrt_llm"
PROMPT = "the tin can än 你好"


@pytest.fixture(scope="module", params=["bf16", "fp8"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server over a tiny checkpoint, plain and in FP8 with an FP8 KV cache; with the checkpoint's folder."""
    pytest.importorskip("tokenizers")
    root = tmp_path_factory.mktemp(request.param)
    formats = {"quantization.weights": request.param, "quantization.kv_cache": request.param}
    calibration = {"calibration.samples": 2, "calibration.tokens_per_sample": 32}
    write_tiny_model(root / "model", max_position_embeddings=1024)
    repository, plan = make_repository(root, formats | calibration | {"runtime": "reference"})
    with running(repository, plan.serve) as server:
        yield server, root / "checkpoint"


def directly(checkpoint: Path, sampler: Sampler, tokens: int) -> tuple[str, float]:
    """Generate with the forward pass itself; return the text and the sum of log probabilities."""
    model, tokenizer = load_reference(checkpoint), load_tokenizer(checkpoint)
    cache = model.new_cache()
    given, picked, total = tokenizer.encode(PROMPT).ids, [], 0.0
    while len(picked) < tokens:
        logits = model.forward(given, cache)[-1].astype(np.float64)
        token = sampler.pick(logits.astype(np.float32))
        total += logits[token] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        if token in model.spec.eos_tokens:
            break
        picked.append(token)
        given = [token]
    return tokenizer.decode(picked), total


def post(server: Server, **body: Any) -> dict[str, Any]:
    """Post to generate and return the document."""
    request = urllib.request.Request(f"{server.urls.http}/v2/models/{MODEL}/generate", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=20) as response:
        document: dict[str, Any] = json.load(response)
    return document


def test_greedy_text_is_the_forward_passes_own(served: tuple[Server, Path]) -> None:
    """What the server answers is what the model says when it is called directly, whole and streamed."""
    server, checkpoint = served
    expected, _ = directly(checkpoint, Sampler(), 40)

    pieces = [piece.text for piece in stream(server.urls.http, MODEL, PROMPT, Sampling(max_tokens=40))]

    assert expected == generate(server.urls.http, MODEL, PROMPT, Sampling(max_tokens=40)).text
    assert expected == "".join(pieces)
    assert len(pieces) > 1


def test_sampled_text_is_the_samplers_own(served: tuple[Server, Path]) -> None:
    """Temperature, top_k, top_p and seed reach the sampler: the same seed gives the same text, another another."""
    server, checkpoint = served
    choice = {"temperature": 0.75, "top_k": 40, "top_p": 0.875}
    expected, _ = directly(checkpoint, Sampler(seed=7, **choice), 30)

    def answer(seed: int) -> str:
        return generate(server.urls.http, MODEL, PROMPT, Sampling(max_tokens=30, seed=seed, **choice)).text

    assert expected == answer(7)
    assert expected != answer(8)


def test_penalties_reach_the_sampler(served: tuple[Server, Path]) -> None:
    """What they lower or raise changes the text, as it does when the model is called directly."""
    server, checkpoint = served
    expected, _ = directly(checkpoint, Sampler(frequency_penalty=1.5, presence_penalty=-0.5), 40)
    plain, _ = directly(checkpoint, Sampler(), 40)

    document = post(
        server,
        text_input=PROMPT,
        sampling_param_max_tokens=40,
        sampling_param_frequency_penalty=1.5,
        sampling_param_presence_penalty=-0.5,
        sampling_param_exclude_input_from_output=True,
    )

    assert (expected, True) == (document["text_output"], expected != plain)


def test_the_engine_that_computes_is_on_the_metrics_page(served: tuple[Server, Path]) -> None:
    """A running answer has a slot and blocks, its steps are counted; afterwards nothing is held."""
    server, _ = served
    before = series(server)["nv_trt_llm_general_metrics"]["iteration_counter"]
    pieces = stream(server.urls.http, MODEL, PROMPT, Sampling(max_tokens=480))
    next(pieces)
    until(lambda: series(server)["nv_trt_llm_request_metrics"]["active"] == 1)
    busy = series(server)
    pieces.close()
    until(lambda: series(server)["nv_trt_llm_request_metrics"]["active"] == 0)

    blocks = busy["nv_trt_llm_kv_cache_block_metrics"]
    assert (64, 64) == (blocks["max"], blocks["used"] + blocks["free"])
    assert blocks["used"] >= 1
    until(lambda: series(server)["nv_trt_llm_kv_cache_block_metrics"]["used"] == 0)
    assert before < series(server)["nv_trt_llm_general_metrics"]["iteration_counter"]


def test_log_probabilities_are_summed(served: tuple[Server, Path]) -> None:
    """cumulative_logprob is the sum over the picked tokens of their log probabilities."""
    server, checkpoint = served
    _, expected = directly(checkpoint, Sampler(), 20)

    document = post(server, text_input=PROMPT, sampling_param_max_tokens=20, return_cumulative_logprob=True)

    assert expected == pytest.approx(document["cumulative_logprob"], rel=1e-4)


def test_a_stop_text_ends_the_answer(served: tuple[Server, Path]) -> None:
    """The answer ends before the stop text, and says which one it was."""
    server, _ = served
    whole = generate(server.urls.http, MODEL, PROMPT, Sampling(max_tokens=40)).text
    stop = whole[10:13]

    document = post(
        server,
        text_input=PROMPT,
        sampling_param_max_tokens=40,
        sampling_param_stop=[stop],
        sampling_param_exclude_input_from_output=True,
        return_finish_reason=True,
        return_stop_reason=True,
    )

    assert whole[: whole.index(stop)] == document["text_output"]
    assert ("stop", stop) == (document["finish_reason"], document["stop_reason"])


def test_memory_is_the_processs_own(served: tuple[Server, Path]) -> None:
    """The page shows the stub's resident memory as cpu, and no GPU memory."""
    memory = series(served[0])["nv_trt_llm_runtime_memory_metrics"]

    assert 20e6 < memory["cpu"] < 1e9
    assert (0, 0) == (memory["gpu"], memory["pinned"])
