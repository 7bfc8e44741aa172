"""A repository of engines in a real tritonserver, over a stand-in for the backend that runs them."""

from __future__ import annotations

import json
import queue
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.rehearsal import make_engine, make_repository, running, series, until
from tests.support.standin.install import installed
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
from trtllm_kit.serve.client import events
from trtllm_kit.serve.process import Server
from trtllm_kit.upstream import known_releases, release

pytestmark = pytest.mark.triton
PROMPTS = ("the tin can än 你好", "a hat and the mat", "one more")
MODELS = ("ensemble", "tensorrt_llm_bls")
REFERENCE: dict[str, Any] = {"toolchain": "mock", "trtllm_version": "0.18.2", "runtime": "reference"}
KV = "nv_trt_llm_kv_cache_block_metrics"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server whose engine is the reference forward pass over a tiny checkpoint; with the checkpoint's folder."""
    pytest.importorskip("tokenizers")
    root = tmp_path_factory.mktemp("engines")
    repository, plan = make_repository(root, REFERENCE)
    with running(repository, plan.serve) as server:
        yield server, root / "checkpoint"


class Direct:
    """The model called directly."""

    def __init__(self, checkpoint: Path) -> None:
        self.model, self.tokenizer = load_reference(checkpoint), load_tokenizer(checkpoint)

    def tokens(self, prompt: str, count: int) -> list[int]:
        """Generate the likeliest tokens; those before an end token."""
        cache, given, picked = self.model.new_cache(), self.tokenizer.encode(prompt).ids, []
        while len(picked) < count:
            token = int(np.argmax(self.model.forward(given, cache)[-1]))
            if token in self.model.spec.eos_tokens:
                break
            picked.append(token)
            given = [token]
        return picked

    def text(self, prompt: str, count: int) -> str:
        """Generate text."""
        return str(self.tokenizer.decode(self.tokens(prompt, count)))


@pytest.fixture(scope="module")
def direct(served: tuple[Server, Path]) -> Direct:
    """The model that the server has behind it."""
    return Direct(served[1])


@pytest.fixture(scope="module")
def server(served: tuple[Server, Path]) -> Server:
    """The server."""
    return served[0]


def post(server: Server, model: str, verb: str = "generate", **body: Any) -> tuple[int, bytes]:
    """Post a JSON body; return status and what came back, also of an error."""
    request = urllib.request.Request(f"{server.urls.http}/v2/models/{model}/{verb}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def whole(server: Server, model: str, prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
    """Return one whole answer."""
    status, text = post(server, model, text_input=prompt, max_tokens=tokens, **more)
    assert status == 200, text
    document: dict[str, Any] = json.loads(text)
    return document


def streamed(server: Server, model: str, prompt: str, tokens: int, **more: Any) -> list[str]:
    """Return the pieces of a stream."""
    status, text = post(server, model, "generate_stream", text_input=prompt, max_tokens=tokens, stream=True, **more)
    assert status == 200, text
    return [json.loads(data)["text_output"] for data in events(iter(text.splitlines(keepends=True)))]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_whole_answers_equal_the_model_called_directly(server: Server, direct: Direct, model: str, prompt: str) -> None:
    """Over HTTP, through ensemble and BLS, with the prompt in front and without it."""
    expected = direct.text(prompt, 24)

    assert expected == whole(server, model, prompt, 24, exclude_input_in_output=True)["text_output"]
    assert prompt + expected == whole(server, model, prompt, 24)["text_output"]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_stream_through_bls_equals_the_model_called_directly(server: Server, direct: Direct, prompt: str) -> None:
    """Joined, the pieces are the text; no character is cut, though one takes several tokens."""
    pieces = streamed(server, "tensorrt_llm_bls", prompt, 24)

    assert direct.text(prompt, 24) == "".join(pieces)
    assert len(pieces) > 1


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_stream_through_the_ensemble_with_an_id(server: Server, direct: Direct, prompt: str) -> None:
    """With a request id postprocessing knows the pieces before; a character that never became whole is left out."""
    pieces = streamed(server, "ensemble", prompt, 24, id=f"stream {prompt}")

    assert direct.text(prompt, 24).rstrip("\ufffd") == "".join(pieces).rstrip("\ufffd")


def test_sixteen_at_once_through_both_models(server: Server, direct: Direct) -> None:
    """Requests that run together each get the answer they get alone."""
    asked = [(MODELS[number % 2], PROMPTS[number % 3], 4 + number) for number in range(16)]

    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda one: whole(server, *one, exclude_input_in_output=True)["text_output"], asked))

    assert [direct.text(prompt, tokens) for _, prompt, tokens in asked] == texts


class Grpc:
    """A gRPC stream that collects what comes."""

    def __init__(self, server: Server) -> None:
        grpc = pytest.importorskip("tritonclient.grpc")
        self._grpc = grpc
        self.client = grpc.InferenceServerClient(server.urls.grpc)
        self._answers: queue.Queue[Any] = queue.Queue()
        self.client.start_stream(lambda result, error: self._answers.put((result, error)))

    def ask(self, model: str, identity: str = "", **inputs: Any) -> list[Any]:
        """Send one request and return its responses, the empty last one left out."""
        tensors = []
        for name, value in inputs.items():
            array = np.array(value)
            kind = {"U": "BYTES", "i": "INT32", "b": "BOOL", "f": "FP32"}[array.dtype.kind]
            array = (
                array.astype(object) if kind == "BYTES" else array.astype({"INT32": np.int32}.get(kind, array.dtype))
            )
            tensors.append(self._grpc.InferInput(name, array.shape, kind))
            tensors[-1].set_data_from_numpy(array)
        self.client.async_stream_infer(model, tensors, request_id=identity, enable_empty_final_response=True)
        found = []
        while True:
            result, error = self._answers.get(timeout=20)
            assert error is None, error
            if result.get_response().outputs:
                found.append(result)
            if result.get_response().parameters["triton_final_response"].bool_param:
                return found

    def close(self) -> None:
        """End the stream."""
        self.client.stop_stream()
        self.client.close()


@pytest.fixture(scope="module")
def grpc(server: Server) -> Iterator[Grpc]:
    """One stream for all tests."""
    stream = Grpc(server)
    yield stream
    stream.close()


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_of_prompts_over_grpc(grpc: Grpc, direct: Direct, model: str) -> None:
    """Each row of a request is answered by itself, under its number, whatever the others' lengths."""
    found = grpc.ask(
        model,
        text_input=[[prompt] for prompt in PROMPTS],
        max_tokens=[[9]] * 3,
        exclude_input_in_output=[[True]] * 3,
    )

    by_row = {int(one.as_numpy("batch_index").item()): one.as_numpy("text_output").item().decode() for one in found}
    assert {row: direct.text(prompt, 9) for row, prompt in enumerate(PROMPTS)} == by_row


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_over_grpc(grpc: Grpc, direct: Direct, model: str) -> None:
    """Pieces come in order, and joined they are the model's text; through the ensemble with an id."""
    found = grpc.ask(model, "a stream over gRPC", text_input=[["one more"]], max_tokens=[[12]], stream=[[True]])

    text = "".join(one.as_numpy("text_output").item().decode() for one in found)
    expected = direct.text("one more", 12)
    broken = "\N{REPLACEMENT CHARACTER}"  # at the end, where the ensemble does not know that nothing follows
    assert expected == text if model == "tensorrt_llm_bls" else expected.rstrip(broken) == text.rstrip(broken)


def test_a_character_that_comes_apart_in_the_ensemble_is_refused(server: Server, direct: Direct) -> None:
    """Without an id, as soon as its first token comes: no broken text is sent, and the engine is free again."""
    status, text = post(server, "ensemble", "generate_stream", text_input="x", max_tokens=60, stream=True)
    first = direct.tokens("x", 2)

    pieces = [json.loads(data) for data in events(iter(text.splitlines(keepends=True)))]
    assert (200, direct.tokenizer.decode(first[:1])) == (status, pieces[0]["text_output"])
    assert 'send an "id" of its own with the request' in pieces[-1]["error"]
    until(lambda: series(server)[KV]["used"] == 0)


def test_the_engine_itself(grpc: Grpc, direct: Direct) -> None:
    """Asked with tokens it answers with tokens, the prompt's before them unless that is left out."""
    prompt = direct.tokenizer.encode(PROMPTS[0]).ids
    inputs = {"input_ids": [prompt], "input_lengths": [[len(prompt)]], "request_output_len": [[6]], "end_id": [[2]]}

    (found,) = grpc.ask("tensorrt_llm", **inputs)

    assert prompt + direct.tokens(PROMPTS[0], 6) == found.as_numpy("output_ids").reshape(-1).tolist()
    assert len(prompt) + 6 == found.as_numpy("sequence_length").item()


@pytest.mark.parametrize("model", MODELS)
def test_what_is_asked_for_comes_along(server: Server, direct: Direct, model: str) -> None:
    """Log probabilities, times and blocks are there as numbers when asked for, and not otherwise."""
    asked = whole(
        server, model, PROMPTS[1], 5, return_log_probs=True, return_perf_metrics=True, exclude_input_in_output=True
    )

    assert 5 == len(asked["output_log_probs"])
    assert pytest.approx(asked["cum_log_probs"], rel=1e-5) == sum(asked["output_log_probs"])
    assert 0.0 > asked["cum_log_probs"]
    assert asked["arrival_time_ns"] <= asked["first_token_time_ns"] <= asked["last_token_time_ns"]
    assert (1, 1, 0) == tuple(
        asked[name] for name in ("kv_cache_alloc_total_blocks", "kv_cache_alloc_new_blocks", "kv_cache_reused_blocks")
    )
    assert "cum_log_probs" not in whole(server, model, PROMPTS[1], 5)


def test_a_stop_word_ends_the_answer_through_bls(server: Server, direct: Direct) -> None:
    """It is cut before the word, whole or streamed, even where the word's letters are parts of several tokens."""
    text = direct.text(PROMPTS[1], 24)
    stop = text[7:10]
    expected = text[: text.index(stop)]

    assert (
        expected
        == whole(server, "tensorrt_llm_bls", PROMPTS[1], 24, stop_words=[stop], exclude_input_in_output=True)[
            "text_output"
        ]
    )
    assert expected == "".join(streamed(server, "tensorrt_llm_bls", PROMPTS[1], 24, stop_words=[stop]))


def test_a_bad_word_is_not_in_the_answer(server: Server, direct: Direct) -> None:
    """Where the model would have said it, it says something else; through ensemble and BLS alike."""
    tokens = direct.tokens(PROMPTS[1], 24)
    place = next(at for at, one in enumerate(tokens) if direct.tokenizer.decode([one]).strip().isascii())
    word = direct.tokenizer.decode([tokens[place]])
    said = [
        whole(server, model, PROMPTS[1], place + 1, bad_words=[word], exclude_input_in_output=True)["text_output"]
        for model in MODELS
    ]

    before = direct.tokenizer.decode(tokens[:place])
    assert [True, False] == [said[0].startswith(before), said[0] == before + word]
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"text_input": "", "max_tokens": 4}, "empty"),
        ({"text_input": "a", "max_tokens": 0}, "max_tokens"),
        ({"text_input": "a", "max_tokens": 4, "num_draft_tokens": 2}, "names none"),
        ({"text_input": "a", "max_tokens": 100000}, "max_seq_len"),
    ],
)
def test_what_cannot_be_served_is_told(server: Server, body: dict[str, Any], said: str) -> None:
    """Errors name the input, and the server goes on."""
    status, text = post(server, "tensorrt_llm_bls", **body)

    assert (400, True) == (status, said in json.loads(text)["error"])


def test_a_client_that_goes_frees_its_blocks(server: Server) -> None:
    """A stream that is closed early is cancelled in the engine, and its blocks come back."""
    body = {"text_input": "the tin", "max_tokens": 400, "stream": True}
    request = urllib.request.Request(
        f"{server.urls.http}/v2/models/tensorrt_llm_bls/generate_stream", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.readline().startswith(b"data:")

    until(lambda: series(server)[KV]["used"] == 0)


def test_requests_are_counted_in_tokens(server: Server) -> None:
    """The backend's families are on the metrics page, with the lengths of the answers."""
    before = series(server)["nv_llm_output_token_len_sum"]["total_output_tokens"]

    whole(server, "ensemble", PROMPTS[2], 7)

    assert 7 == series(server)["nv_llm_output_token_len_sum"]["total_output_tokens"] - before
    assert 64 == series(server)[KV]["max"]


def test_an_engine_that_the_builder_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole road of a newest engine: rank files, trtllm-build, repository, server; its answer is the model's."""
    pytest.importorskip("tokenizers")
    for name, value in installed(tmp_path / "bin", "1.2.1").items():
        monkeypatch.setenv(name, value)
    changes = {"toolchain": "trtllm-build", "trtllm_version": "1.2.1", "runtime": "reference"}
    write_tiny_model(tmp_path / "model")
    repository, plan = make_repository(tmp_path, changes)

    with running(repository, plan.serve) as server:
        direct = Direct(tmp_path / "checkpoint")
        for model in MODELS:
            expected = direct.text(PROMPTS[1], 12)
            assert expected == whole(server, model, PROMPTS[1], 12, exclude_input_in_output=True)["text_output"]


def test_a_draft_engine_through_bls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six models; drafts of a smaller model change nothing of the answer, and the engine says how many it kept."""
    pytest.importorskip("tokenizers")
    for name, value in installed(tmp_path / "bin", "0.18.2").items():
        monkeypatch.setenv(name, value)
    changes: dict[str, Any] = {"toolchain": "trtllm-build", "trtllm_version": "0.18.2", "runtime": "reference"}
    write_tiny_model(tmp_path / "small" / "model", seed=1)
    (tmp_path / "small").mkdir(exist_ok=True)
    make_engine(tmp_path / "small", changes)
    drafts = {"speculation": {"kind": "draft_target", "draft_tokens": 3,
                              "draft_checkpoint": str(tmp_path / "small" / "checkpoint")}}  # fmt: skip
    repository, plan = make_repository(tmp_path, changes | drafts)

    with running(repository, plan.serve) as server:
        expected = Direct(tmp_path / "checkpoint").text(PROMPTS[1], 12)
        body = {"exclude_input_in_output": True, "num_draft_tokens": 3, "return_perf_metrics": True}
        answer = whole(server, "tensorrt_llm_bls", PROMPTS[1], 12, **body)
    assert (expected, True) == (answer["text_output"], 0 < answer["total_draft_tokens"] <= 3)


@pytest.mark.slow
@pytest.mark.parametrize("version", [name for name in known_releases() if "trtllm-build" in release(name).toolchains])
def test_the_repository_of_a_release_loads(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every release that serves engines: all models are ready, and both ways answer the same."""
    for name, value in installed(tmp_path / "bin", version).items():
        monkeypatch.setenv(name, value)
    changes = {"toolchain": "trtllm-build", "trtllm_version": version, "runtime": "simulated"}
    repository, plan = make_repository(tmp_path, changes)

    with running(repository, plan.serve) as server:
        texts = {whole(server, model, "hello", 6)["text_output"] for model in MODELS}
    assert 1 == len(texts)
