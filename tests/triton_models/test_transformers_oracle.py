"""The transformers runtime against transformers' own answers, without Triton and behind a real tritonserver."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ask import Ask
from tests.support.rehearsal import make_repository, running, series
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.errors import KitError
from trtllm_kit.reference.sampling import Sampler
from trtllm_kit.serve.client import Sampling, generate, stream
from trtllm_kit.serve.process import Server

pytestmark = [pytest.mark.oracle, pytest.mark.triton]
torch = pytest.importorskip("torch", reason="the runtime needs torch")
pytest.importorskip("transformers", reason="the runtime needs transformers")
MODEL = "tensorrt_llm"
PROMPTS = ("the tin can än 你好", "a", "rope, rope, and a longer prompt than the others " * 3)


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ({}, {}),
        ({"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.7, "top_p": 0.9}),
        ({"temperature": 1.5, "top_k": 5}, {"temperature": 1.5, "top_k": 5}),
        ({"temperature": 0.9, "top_k": 8, "top_p": 0.5}, {"temperature": 0.9, "top_k": 8, "top_p": 0.5}),
        ({"frequency_penalty": 0.5, "presence_penalty": 1.0}, {"frequency_penalty": 0.5, "presence_penalty": 1.0}),
    ],
)
def test_a_choice_is_the_samplers(named: dict[str, float], asked: dict[str, float]) -> None:
    """On the same logits and seeds a batch chooses what the reference sampler chooses for each row alone."""
    from choice import Chooser, choose

    random = np.random.default_rng(1)
    seeds = (3, 4, 5)
    alone = [Sampler(seed=seed, **named) for seed in seeds]  # type: ignore[arg-type]
    together = [Chooser(Ask(prompt="p", seed=seed, **asked)) for seed in seeds]  # type: ignore[arg-type]
    for _ in range(20):
        logits = random.normal(0, 2, (3, 50)).astype(np.float32)
        wanted = [sampler.pick(row) for sampler, row in zip(alone, logits, strict=True)]
        assert wanted == [token for token, _ in choose(torch.from_numpy(logits), together)]


def test_a_log_probability_is_that_of_the_logits_as_they_were() -> None:
    """Where it is asked for, it is the log softmax at the token before penalties and temperature; else 0."""
    from choice import Chooser, choose

    logits = torch.tensor([[0.0, 2.0, 1.0], [0.0, 2.0, 1.0]])
    told = choose(logits, [Chooser(Ask(prompt="p", cumulative_logprob=True)), Chooser(Ask(prompt="p"))])
    expected = 2.0 - float(np.log(np.exp([0.0, 2.0, 1.0]).sum()))
    assert [(1, pytest.approx(expected, rel=1e-6)), (1, 0.0)] == told


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny model as transformers loads it, on the CPU in float32."""
    from transformers import AutoModelForCausalLM

    from kv_pool import ATTENTION, register

    folder = write_tiny_model(tmp_path_factory.mktemp("plain") / "model", max_position_embeddings=1024)
    register()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=ATTENTION).eval()


def directly(model: Any, prompt: tuple[int, ...], count: int) -> list[int]:
    """Return the greedy tokens after a prompt, each by a pass over everything before it."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def batch_of(model: Any, blocks: int, size: int = 4) -> tuple[Any, Any, Callable[[tuple[int, ...], int], Any]]:
    """Return a batch over a pool, the pool's free list, and what makes a row."""
    from batch import Batch, Row
    from choice import Chooser
    from kv_pool import Blocks

    free = Blocks(blocks, size)
    batch = Batch(model, model.config.num_hidden_layers, free)
    return batch, free, lambda prompt, most: Row(prompt, most, Chooser(Ask(prompt="p")))


def test_a_batch_answers_as_each_request_alone(model: Any) -> None:
    """Requests of other lengths that join and leave at other steps get the tokens that each gets alone."""
    batch, free, row = batch_of(model, 40)
    prompts = [tuple(range(5, 5 + length)) for length in (1, 7, 16, 3)]
    rows = [row(prompt, 12) for prompt in prompts]
    heard: list[list[int]] = [[] for _ in rows]
    for step in range(18):
        here = [one for place, one in enumerate(rows) if place * 2 <= step < place * 2 + 12]
        batch.step(here)
        for one in here:
            heard[rows.index(one)].append(one.token)
        for one in rows:
            if len(heard[rows.index(one)]) == 12 and not one.gone:
                batch.leave(one)
    batch.step([])
    assert [directly(model, prompt, 12) for prompt in prompts] == heard
    assert 40 == free.free


def test_one_long_request_is_not_copied_for_all(model: Any) -> None:
    """Groups, longest first, are filled up to no more blocks than there are; each row is in one of them."""
    from batch import _alike
    from kv_pool import Blocks

    _, _, row = batch_of(model, 1)
    rows = [row((1,), 1) for _ in range(5)]
    for one, kept in zip(rows, (3, 39, 2, 15, 7), strict=True):
        one.kept = kept
    assert [[39], [15, 7], [3, 2]] == [[one.kept for one in group] for group in _alike(rows, Blocks(11, 4))]


def test_a_request_that_left_is_not_computed_and_its_blocks_come_back(model: Any) -> None:
    """A row whose client goes within a step keeps its token and gives its blocks to the next step's newcomer."""
    batch, free, row = batch_of(model, 6)
    first, second = row((5, 6, 7, 8), 16), row((9, 9), 20)
    batch.step([first])
    assert 1 == free.free
    token = first.token
    batch.leave(first)
    batch.step([first, second])
    assert (token, 0) == (first.token, free.free)
    assert directly(model, (9, 9), 1) == [second.token]


def test_blocks_that_are_not_there_are_refused() -> None:
    """The pool gives whole blocks, and none where there are too few."""
    from kv_pool import Blocks

    blocks = Blocks(3, 4)
    assert (2, 1) == (len(blocks.take(5)), blocks.free)
    with pytest.raises(IndexError, match=r"^2 KV blocks wanted, 1 are free$"):
        blocks.take(5)
    assert 16 == blocks.size


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server over a tiny checkpoint, with the checkpoint's folder.

    Its weights are made float32 again: in 16 bit the order of a sum decides near ties of a random model.
    """
    root = tmp_path_factory.mktemp("served")
    write_tiny_model(root / "model", max_position_embeddings=1024)
    repository, plan = make_repository(root, {"runtime": "transformers", "serve.start_grace": 120})
    widen(root / "checkpoint")
    with running(repository, plan.serve) as server:
        yield server, root / "checkpoint"


def widen(checkpoint: Path) -> None:
    """Store the weights of a checkpoint as float32."""
    from safetensors.torch import load_file, save_file

    for file in checkpoint.glob("*.safetensors"):
        save_file({name: tensor.float() for name, tensor in load_file(file).items()}, file, {"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_text()) | {"dtype": "float32", "torch_dtype": "float32"}
    (checkpoint / "config.json").write_text(json.dumps(config))


def spoken(checkpoint: Path, prompt: str, tokens: int) -> str:
    """Return the greedy answer of transformers' own generation, with its own cache."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto").eval()
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    answer = model.generate(ids, max_new_tokens=tokens, do_sample=False)[0, ids.shape[1] :]
    text: str = tokenizer.decode(answer.tolist())
    return text


def test_the_server_says_what_transformers_says(served: tuple[Server, Path]) -> None:
    """Whole and streamed answers are the model's own greedy text; a stream comes in pieces."""
    server, checkpoint = served
    for prompt in PROMPTS:
        expected = spoken(checkpoint, prompt, 24)
        pieces = [piece.text for piece in stream(server.urls.http, MODEL, prompt, Sampling(max_tokens=24))]
        assert expected == generate(server.urls.http, MODEL, prompt, Sampling(max_tokens=24)).text
        assert expected == "".join(pieces)
        assert len(pieces) > 1


def test_a_seed_gives_the_same_text_again(served: tuple[Server, Path]) -> None:
    """Sampling follows the seed: the same gives the same text, another another."""
    server, _ = served

    def answer(seed: int) -> str:
        choice = Sampling(max_tokens=24, seed=seed, temperature=0.9, top_p=0.95)
        return generate(server.urls.http, MODEL, PROMPTS[0], choice).text

    assert answer(7) == answer(7)
    assert answer(7) != answer(8)


def test_a_client_that_goes_frees_its_blocks(served: tuple[Server, Path]) -> None:
    """After a stream that was left in its middle the page tells of no active request and no used block."""
    server, _ = served
    for _piece in stream(server.urls.http, MODEL, PROMPTS[0], Sampling(max_tokens=400)):
        break

    def page() -> tuple[float, float]:
        found = series(server)
        return found["nv_trt_llm_request_metrics"]["active"], found["nv_trt_llm_kv_cache_block_metrics"]["used"]

    deadline = time.monotonic() + 10
    while page() != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (0, 0) == page()


def test_a_plan_for_gpus_is_not_served_on_a_cpu() -> None:
    """Where torch finds no GPU the runtime refuses a plan of real hardware, and takes that of a rehearsal."""
    from runtime_transformers import _device
    from settings import BadSettings

    class Cpu:
        """Stands for torch without a GPU."""

        __version__ = "2.0"

        class cuda:  # noqa: N801
            """Finds none."""

            is_available = staticmethod(lambda: False)

    class Plan:
        """Names its hardware."""

        def __init__(self, hardware: str) -> None:
            self.hardware = hardware

    with pytest.raises(BadSettings, match=r"^the plan is for h200x1, and torch 2.0 finds no GPU here$"):
        _device(Cpu, Plan("h200x1"))
    assert "cpu" == _device(Cpu, Plan("cpu-rehearsal"))


def test_a_quantised_checkpoint_is_refused(tmp_path: Path) -> None:
    """Scales of a conversion are not applied, so a folder that has them is refused with the keys to change."""
    from runtime_transformers import _require_plain
    from settings import BadSettings

    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_algo": "FP8"}}')
    with pytest.raises(BadSettings, match=r"is quantised, and the transformers runtime computes in 16 bit"):
        _require_plain(tmp_path)


def test_the_plan_refuses_what_the_runtime_cannot(tmp_path: Path) -> None:
    """FP8 weights with this runtime are an error of the plan already."""
    with pytest.raises(KitError, match=r"computes in 16 bit"):
        make_repository(tmp_path, {"runtime": "transformers", "quantization.weights": "fp8"})
