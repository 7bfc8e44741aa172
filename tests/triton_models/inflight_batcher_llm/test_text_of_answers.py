"""Text of answers over real tokenizers of every kind: whole, streamed, and cut at stop words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

from .conftest import CORPUS, Models

TEXTS = (*CORPUS, " a leading space", "no", "🙂🙂", "tabs\tand\nlines ", "the the the")
TRUE = [[True]]


def said(models: Models, text: str) -> str:
    """Return what the tokenizer itself makes of the answer's tokens."""
    return models.tokenizer.decode(models.says(text), skip_special=True)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_stream_joined_is_the_text_of_its_tokens(models: Models, text: str, chunk: int) -> None:
    """Spaces are kept and no piece holds half a character, whether tokens come one by one or several together."""
    expected = said(models, text)
    models.says(text, chunk=chunk)

    pieces = models.texts(models.ask(stream=TRUE))

    assert expected == "".join(pieces)
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("text", TEXTS)
def test_a_whole_answer_is_the_text_of_its_tokens(models: Models, text: str) -> None:
    """Without the prompt it is what the tokenizer makes of it, and with it the prompt stands before it unchanged."""
    expected = said(models, text)

    assert [expected] == models.texts(models.ask(exclude_input_in_output=TRUE))
    assert ["the cat" + text] == models.texts(models.ask())


@pytest.mark.parametrize("stop", ["STOP", "the end", "stop there", "er", "📛"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_stop_word_cuts_wherever_its_letters_fall(models: Models, stop: str, streams: bool) -> None:
    """Nothing of the word is shown, though it is a part of a token or several of them."""
    whole = said(models, CORPUS[0])
    flags: dict[str, Any] = {"stream": TRUE} if streams else {"exclude_input_in_output": TRUE}

    pieces = models.texts(models.ask(stop_words=np.array([[stop.encode()]], dtype=object), **flags))

    assert whole.partition(stop)[0] == "".join(pieces)


def test_a_stop_word_stops_the_engine(models: Models) -> None:
    """It is told that nobody waits for the rest."""
    models.says(CORPUS[0])
    models.ask(stream=TRUE, stop_words=np.array([[b"fox"]], dtype=object))

    assert 1 == models.stopped


def test_a_piece_asks_postprocessing_once(models: Models) -> None:
    """What the next piece is joined to is asked for with the piece before it; characters of several tokens ask more."""
    tokens = models.says(CORPUS[0])
    asked: list[Any] = []
    answer = pb_utils.InferenceRequest.models["postprocessing"]
    pb_utils.InferenceRequest.models["postprocessing"] = lambda request: asked.append(request) or answer(request)
    models.ask(stream=TRUE)

    assert len(tokens) + 1 >= len(asked)


def test_gathered_tokens_give_all_text_so_far(make_models: Callable[..., Models]) -> None:
    """With accumulate_tokens every piece begins with the one before it."""
    models = make_models(accumulate_tokens="true")
    expected = said(models, CORPUS[2])

    pieces = models.texts(models.ask(stream=TRUE))

    assert expected == pieces[-1]
    assert all(after.startswith(before) for before, after in pairwise(pieces))


def test_words_to_stop_at_have_no_first_token(models: Models) -> None:
    """With the one that a prompt begins with they would never be found; every spelling is there, once."""
    from words import spellings

    found = spellings(models.tokenizer, "STOP")

    assert all(1 not in ids for ids in found)
    assert len(found) == len(set(found))
    in_text = models.tokenizer.encode("a STOP", special=False)
    assert any(tuple(in_text[-len(ids) :]) == ids for ids in found)


def test_word_lists_are_laid_out_as_the_backend_reads_them() -> None:
    """All ids in the first row, the end of each word in the second, filled up with -1."""
    from words import batch_of_lists, word_list

    lists = [word_list([(5, 6), (7,)]), word_list([])]

    assert [[5, 6, 7], [2, 3, -1]] == lists[0].tolist()
    assert [[[5, 6, 7], [2, 3, -1]], [[0, 0, 0], [-1, -1, -1]]] == batch_of_lists(lists).tolist()


def one_by_one(models: Models, ids: list[int], identity: str) -> str:
    """Send tokens through postprocessing as the ensemble does."""
    texts = []
    for token in ids:
        tensors = {
            "TOKENS_BATCH": np.array([[[token]]], dtype=np.int32),
            "SEQUENCE_LENGTH": np.array([[1]], dtype=np.int32),
        }
        (response,) = models.postprocessing.execute([pb_utils.Request(identity, **tensors)])
        texts.append(response.outputs["OUTPUT"][0][0].decode())
    return "".join(texts)


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_of_a_named_stream_are_joined_right(models: Models, text: str) -> None:
    """Through the ensemble, with a request id: as if decoded at once."""
    expected = said(models, text)

    assert expected == one_by_one(models, models.answers[0], "a stream")


def test_streams_of_two_names_do_not_mix(models: Models) -> None:
    """Each has its own memory, though their pieces alternate."""
    expected = said(models, CORPUS[1])
    ids = models.answers[0]
    texts = {"one": "", "other": ""}
    for token in ids:
        for name in texts:
            texts[name] += one_by_one(models, [token], name)

    assert {"one": expected, "other": expected} == texts


def test_a_part_of_a_character_without_a_name_is_refused(models: Models) -> None:
    """Nothing broken is shown; the error says what helps. Parts that are joined by a name are text."""
    (part, *_) = models.postprocessing._tokenizer.encode("\N{SNOWMAN WITHOUT SNOW}", special=False)[-1:]
    tensors = {"TOKENS_BATCH": np.array([[[part]]], np.int32), "SEQUENCE_LENGTH": np.array([[1]], np.int32)}
    (refused,) = models.postprocessing.execute([pb_utils.Request("", **tensors)])
    (held,) = models.postprocessing.execute([pb_utils.Request("named", **tensors)])

    assert "tensorrt_llm_bls" in refused.error.message()
    assert b"" == held.outputs["OUTPUT"][0][0]


def test_pieces_without_a_name_keep_their_spaces(models: Models) -> None:
    """A single token is decoded as if text stood before it."""
    said(models, " the mat and the cat")

    assert " the mat and the cat" == one_by_one(models, models.answers[0], "")
