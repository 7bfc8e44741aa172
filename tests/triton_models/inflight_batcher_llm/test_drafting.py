"""Speculative decoding through BLS: a draft engine proposes, the model's engine decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

from .conftest import CORPUS, Models

END = 2
DRAFTS = {"num_draft_tokens": [[4]], "exclude_input_in_output": [[True]]}


def model_token(ids: tuple[int, ...]) -> int:
    """Return what the model says after some tokens."""
    return 300 + (sum(ids) * 7 + len(ids)) % 90


def engine(next_token: Callable[[tuple[int, ...]], int], asked: list[Any]) -> Callable[[Any], Iterator[Any]]:
    """Return an engine that goes on from tokens until the end token or as far as it is asked to."""

    def answer(request: Any) -> Iterator[Any]:
        asked.append(request)
        ids = request.inputs["input_ids"].array.reshape(-1).tolist()
        written: list[int] = []
        while len(written) < int(request.inputs["request_output_len"].array.item()):
            written.append(next_token(tuple(ids + written)))
            if written[-1] == END:
                break
        yield pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("output_ids", np.array([[written]], dtype=np.int32)),
                pb_utils.Tensor("sequence_length", np.array([[len(written)]], dtype=np.int32)),
            ]
        )

    return answer


class Pair:
    """BLS with two engines."""

    def __init__(self, make_models: Callable[..., Models], draft: Callable[[tuple[int, ...]], int]) -> None:
        self.models = make_models(tensorrt_llm_draft_model_name="tensorrt_llm_draft")
        self.drafted: list[Any] = []
        self.asked: list[Any] = []
        self.next_token = model_token
        pb_utils.InferenceRequest.models["tensorrt_llm"] = engine(lambda ids: self.next_token(ids), self.asked)
        pb_utils.InferenceRequest.models["tensorrt_llm_draft"] = engine(draft, self.drafted)

    def expected(self, tokens: int) -> str:
        """Return the text of the model's own answer."""
        ids = list(self.models.tokenizer.encode("the cat", special=True))
        written: list[int] = []
        while len(written) < tokens and (not written or written[-1] != END):
            written.append(self.next_token(tuple(ids + written)))
        return self.models.tokenizer.decode(written, skip_special=True)


@pytest.mark.parametrize(
    "draft",
    [model_token, lambda ids: model_token(ids) if len(ids) % 3 else 301, lambda _: 302],
    ids=["all", "some", "no"],
)
def test_the_answer_is_the_models_whatever_is_proposed(
    make_models: Callable[..., Models], draft: Callable[[tuple[int, ...]], int]
) -> None:
    """With a draft that agrees always, at times or never, and exactly as many tokens as asked for."""
    pair = Pair(make_models, draft)

    assert [pair.expected(23)] == pair.models.texts(pair.models.ask(tokens=23, **DRAFTS))


def test_each_round_proposes_as_many_as_asked_and_the_model_adds_one(make_models: Callable[..., Models]) -> None:
    """Four proposed and five asked of the model; the last round is shorter, for no token beyond the answer."""
    pair = Pair(make_models, model_token)
    pair.models.ask(tokens=12, **DRAFTS)

    assert [4, 4, 1] == [one.inputs["draft_input_ids"].array.size for one in pair.asked]
    assert [5, 5, 2] == [one.inputs["request_output_len"].array.item() for one in pair.asked]


def test_an_end_token_ends_the_rounds(make_models: Callable[..., Models]) -> None:
    """Nothing is asked after it."""
    pair = Pair(make_models, model_token)
    prompt = len(pair.models.tokenizer.encode("the cat", special=True))
    pair.next_token = lambda ids: END if len(ids) == prompt + 7 else model_token(ids)

    assert [pair.expected(50)] == pair.models.texts(pair.models.ask(tokens=50, **DRAFTS))
    assert 2 == len(pair.asked)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"stream": [[True]]}, "stream"),
        ({"beam_width": [[2]]}, "beam_width"),
        ({"num_draft_tokens": [[-1]]}, "0 or more"),
    ],
)
def test_what_drafts_do_not_go_with_is_told(make_models: Callable[..., Models], inputs: Any, said: str) -> None:
    """Before any engine is asked."""
    pair = Pair(make_models, model_token)
    sender = pair.models.ask(**(DRAFTS | inputs))

    assert said in sender.responses[0].error.message
    assert [] == pair.asked


def test_a_draft_without_a_draft_model_is_told(models: Models) -> None:
    """The parameter that would name one is named."""
    models.says("no")
    sender = models.ask(**DRAFTS)

    assert "tensorrt_llm_draft_model_name" in sender.responses[0].error.message


def test_an_engine_that_fails_is_told_and_ends_the_request(models: Models) -> None:
    """A client is never left waiting."""
    refusal = pb_utils.InferenceResponse(error=pb_utils.TritonError("queue full"))
    pb_utils.InferenceRequest.models["tensorrt_llm"] = lambda _: iter([refusal])
    sender = models.ask(stream=[[True]])

    assert "tensorrt_llm: queue full" == sender.responses[0].error.message


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"QUERY": [[b""]]}, "QUERY is empty"),
        ({"QUERY": [[b"a", b"b"]]}, "one prompt a row"),
        ({"QUERY": [[b"\xff"]]}, "not UTF-8"),
        ({"REQUEST_OUTPUT_LEN": None}, "REQUEST_OUTPUT_LEN is required"),
        ({"EMBEDDING_BIAS_WORDS": [[b"a"]]}, "come together"),
        ({"IMAGE_URL": [[b"http://x"]]}, "text alone"),
    ],
)
def test_preprocessing_tells_what_it_cannot_read(models: Models, inputs: dict[str, Any], said: str) -> None:
    """By the name of the tensor; the other requests of the batch are answered."""
    good = {"QUERY": np.array([[b"the cat"]], dtype=object), "REQUEST_OUTPUT_LEN": np.array([[4]], dtype=np.int32)}
    changed = {key: np.array(value, dtype=object) for key, value in inputs.items() if value is not None}
    bad = {key: value for key, value in (good | changed).items() if inputs.get(key, value) is not None}
    answers = models.preprocessing.execute([pb_utils.Request("", **bad), pb_utils.Request("", **good)])

    assert said in answers[0].error.message
    assert answers[1].error is None


def test_prompts_of_different_lengths_are_filled_up(models: Models) -> None:
    """With the padding token at their ends, and their lengths beside them."""
    prompts = [CORPUS[1], "no"]
    request = pb_utils.Request(
        "",
        QUERY=np.array([[one.encode()] for one in prompts], dtype=object),
        REQUEST_OUTPUT_LEN=np.array([[4], [5]], dtype=np.int32),
    )
    (answer,) = models.preprocessing.execute([request])

    encoded = [models.tokenizer.encode(one, special=True) for one in prompts]
    lengths = answer.outputs["REQUEST_INPUT_LEN"].reshape(-1).tolist()
    assert [len(one) for one in encoded] == lengths
    rows = answer.outputs["INPUT_ID"].tolist()
    assert encoded == [row[:length] for row, length in zip(rows, lengths, strict=True)]
    assert {models.tokenizer.pad_id} == set(rows[1][lengths[1] :])
    assert [[END], [END]] == answer.outputs["OUT_END_ID"].tolist()
