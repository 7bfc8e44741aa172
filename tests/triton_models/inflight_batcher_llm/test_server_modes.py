"""Engines in a real tritonserver: with beams, and with several instances in an orchestrator's server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.rehearsal import make_repository, running, series, until
from trtllm_kit.plan.serving_mode import SPAWNS
from trtllm_kit.serve.process import Server
from trtllm_kit.serve.run_record import read_record, stub_processes

from .test_server_engines import KV, MODELS, PROMPTS, REFERENCE, Direct, post, streamed, whole

pytestmark = pytest.mark.triton
BEAMS, TOKENS = 3, 6


@pytest.fixture(scope="module")
def beams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Direct]]:
    """A server whose engine searches three beams, and the model called directly."""
    pytest.importorskip("tokenizers")
    root = tmp_path_factory.mktemp("beams")
    repository, plan = make_repository(root, REFERENCE | {"limits.max_beam_width": BEAMS})
    with running(repository, plan.serve) as server:
        yield server, Direct(root / "checkpoint")


def searched(direct: Direct, prompt: str) -> list[tuple[list[int], float]]:
    """Search beams with the model called directly, from the prompt again for every token; best first."""
    ids, ends = direct.tokenizer.encode(prompt).ids, direct.model.spec.eos_tokens
    found: list[tuple[list[int], float]] = [([], 0.0)]
    for _ in range(TOKENS):
        offers = [one for one in found if one[0] and one[0][-1] in ends]
        for written, total in (one for one in found if not (one[0] and one[0][-1] in ends)):
            logits = direct.model.forward([*ids, *written], direct.model.new_cache())[-1].astype(np.float64)
            chances = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            offers += [([*written, int(one)], total + float(chances[one])) for one in np.argsort(-chances)[:BEAMS]]
        found = sorted(offers, key=lambda one: -one[1])[:BEAMS]
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prompt", PROMPTS[1:])
def test_beams_are_the_most_probable_answers(beams: tuple[Server, Direct], model: str, prompt: str) -> None:
    """All of them in one response, best first, each with its probability, through ensemble and BLS alike."""
    server, direct = beams
    expected = searched(direct, prompt)

    answer = whole(server, model, prompt, TOKENS, beam_width=BEAMS, exclude_input_in_output=True, return_log_probs=True)

    assert [direct.tokenizer.decode(ids) for ids, _ in expected] == answer["text_output"]
    assert pytest.approx([total for _, total in expected], rel=1e-4) == answer["cum_log_probs"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"beam_width": 2}, "Request beam width 2 is not equal to max_beam_width 3"),
        ({}, "Request beam width 1 is not equal to max_beam_width 3"),
        ({"beam_width": BEAMS, "stream": True}, "beam"),
    ],
)
def test_what_beams_cannot_do_is_told(beams: tuple[Server, Direct], asked: dict[str, object], said: str) -> None:
    """Another number than the engine was built for, and a stream, whose best is not known before its end."""
    status, text = post(beams[0], "tensorrt_llm_bls", text_input="a hat", max_tokens=4, **asked)

    assert (400, True) == (status, said in json.loads(text)["error"])


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """An orchestrator's server with two instances of two ranks on a node of eight GPUs; with its repository."""
    pytest.importorskip("tokenizers")
    changes = REFERENCE | {
        "runtime": "simulated", "hardware": "h200x8-700w", "parallelism.tensor": 2, "parallelism.replicas": 2,
        "environment": {"TRTLLM_ORCHESTRATOR": "1"}, "limits.max_batch_size": 1,
    }  # fmt: skip
    repository, plan = make_repository(tmp_path_factory.mktemp("instances"), changes)
    with running(repository, plan.serve) as server:
        yield server, repository


def test_every_instance_is_a_process_with_gpus_of_its_own(instances: tuple[Server, Path]) -> None:
    """Two of the engine beside the three models around it, as config.pbtxt says."""
    server, repository = instances
    record = read_record(repository)
    assert record is not None
    config = (repository / "tensorrt_llm" / "config.pbtxt").read_text()

    assert 5 == len(stub_processes(record.shm_prefix))
    assert 'key: "gpu_device_ids" value { string_value: "0,1;2,3" }' in config
    assert "instance_group [ { count: 2 kind: KIND_CPU } ]" in config
    assert server.running()


@pytest.mark.parametrize("model", MODELS)
def test_instances_answer_alike_whole_and_streamed(instances: tuple[Server, Path], model: str) -> None:
    """Eight requests at once over two engines of one slot: every answer is that of its prompt, and nothing is held."""
    server, _ = instances
    prompts = [f"question number {number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        texts = list(
            pool.map(lambda one: whole(server, model, one, 20, exclude_input_in_output=True)["text_output"], prompts)
        )
        again = list(pool.map(lambda one: "".join(streamed(server, "tensorrt_llm_bls", one, 20)), prompts))

    alone = [whole(server, model, one, 20, exclude_input_in_output=True)["text_output"] for one in prompts]
    assert alone == texts
    assert [text.strip() for text in texts] == [text.strip() for text in again]
    until(lambda: series(server)[KV]["used"] == 0)


def test_ranks_that_wait_already_are_named_and_a_client_that_left_holds_nothing(tmp_path: Path) -> None:
    """An orchestrator that spawns nothing loads and answers; cut and stopped streams keep it from no clean end."""
    pytest.importorskip("tokenizers")
    waiting = {"TRTLLM_ORCHESTRATOR": "1", SPAWNS: "0"}
    repository, plan = make_repository(tmp_path, REFERENCE | {"runtime": "simulated", "environment": waiting})
    config = (repository / "tensorrt_llm" / "config.pbtxt").read_text()

    with running(repository, plan.serve) as server:
        text = whole(server, "ensemble", "a hat", 20, exclude_input_in_output=True)["text_output"]
        for _ in range(3):
            leave(server, "a hat", 60)
            cut = streamed(server, "tensorrt_llm_bls", "a hat", 60, stop_words=[text[6:9]])
            assert text[: text.index(text[6:9])].strip() == "".join(cut).strip()
        until(lambda: series(server)[KV]["used"] == 0)

    assert 'key: "participant_ids" value { string_value: "1" }' in config
    assert not any("Exit timeout expired" in line for line in server.tail(50))


def leave(server: Server, prompt: str, tokens: int) -> None:
    """Begin a stream through BLS and close the connection after its first bytes."""
    body = {"text_input": prompt, "max_tokens": tokens, "stream": True}
    url = f"{server.urls.http}/v2/models/tensorrt_llm_bls/generate_stream"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=20) as response:
        assert response.read(20)
