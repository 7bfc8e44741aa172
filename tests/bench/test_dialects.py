"""What interfaces are asked, and what their events say."""

from __future__ import annotations

import json

import pytest

from trtllm_kit.bench.dialects import DIALECTS, Ask, Part
from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.http_stream import Malformed

ASK = Ask("hi", 9, temperature=0.7, top_p=0.9)


def read(api: str, document: object) -> Part:
    """Return what an event says."""
    return DIALECTS[api].read(json.dumps(document).encode())


def test_both_repositories_are_asked_in_their_own_tensors() -> None:
    """The LLM API's model takes sampling_param_ names, the ensemble plain ones."""
    llmapi = DIALECTS["triton"].body("m", ASK, False)
    legacy = DIALECTS["triton-legacy"].body("m", ASK, True)
    assert (9, True, 0.7, 0.9) == (
        llmapi["sampling_param_max_tokens"],
        llmapi["streaming"],
        llmapi["sampling_param_temperature"],
        llmapi["sampling_param_top_p"],
    )
    assert (9, True, 0.7, 0.9, 9) == tuple(
        legacy[key] for key in ("max_tokens", "stream", "temperature", "top_p", "min_tokens")
    )
    assert "sampling_param_seed" not in llmapi


def test_openai_is_asked_for_its_count() -> None:
    """Completions and chat ask for usage in the stream, and go past the end only when that is wanted."""
    chat = DIALECTS["openai-chat"].body("m", ASK, True)
    plain = DIALECTS["openai"].body("m", ASK, False)
    assert ({"include_usage": True}, True, "hi") == (
        chat["stream_options"],
        chat["ignore_eos"],
        chat["messages"][0]["content"],
    )
    assert ("hi", False) == (plain["prompt"], "ignore_eos" in plain)


def test_greedy_and_whole_are_said_in_each_interface() -> None:
    """Triton's models are asked for the likeliest token by top_k, OpenAI's by temperature; it streams all the same."""
    ask = Ask("hi", 9, greedy=True, whole=True)
    llmapi, legacy, plain, chat = (DIALECTS[name].body("m", ask, False) for name in DIALECTS)
    assert [(1, False), (1, False)] == [
        (llmapi["sampling_param_top_k"], llmapi["streaming"]),
        (legacy["top_k"], legacy["stream"]),
    ]
    assert [(0.0, True), (0.0, True)] == [(body["temperature"], body["stream"]) for body in (plain, chat)]
    assert "7" == DIALECTS["triton-legacy"].body("m", Ask("hi", 9, identity="7"), False)["id"]
    assert not {"id", "top_k", "sampling_param_top_k"} & {*DIALECTS["triton-legacy"].body("m", ASK, False)}


def test_events_of_triton() -> None:
    """Text, end and error are read, a tensor of one element also as a list."""
    assert Part("a", finish="length") == read("triton", {"text_output": ["a"], "finish_reason": "length"})
    piece = {"text_output": "b", "num_output_tokens": 1}  # of this piece alone: no count of the answer
    assert Part("b") == read("triton-legacy", piece)
    assert Part(error="queue full") == read("triton", {"error": "queue full"})


def test_events_of_openai() -> None:
    """A role alone is no text; thinking and calls of tools are; usage is counted; [DONE] is the end."""
    assert Part() == read("openai-chat", {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    assert "hm" == read("openai-chat", {"choices": [{"delta": {"reasoning_content": "hm"}}]}).text
    assert read("openai-chat", {"choices": [{"delta": {"tool_calls": [{"id": "1"}]}}]}).text
    assert Part("x", finish="stop") == read("openai", {"choices": [{"text": "x", "finish_reason": "stop"}]})
    counts = read("openai", {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}})
    assert (5, 7) == (counts.prompt_tokens, counts.answer_tokens)
    assert Part(done=True) == DIALECTS["openai"].read(b"[DONE]")
    assert Part(error="bad") == read("openai", {"error": {"message": "bad"}})


@pytest.mark.parametrize("data", [b'{"text_output": ', b"[1]", b'{"text_output": 3}', b"\xff", b"[" * 100_000])
def test_other_events_are_malformed(data: bytes) -> None:
    """What is no event of the interface is refused."""
    with pytest.raises(Malformed):
        DIALECTS["triton"].read(data)


def test_a_stream_that_repeats_itself_is_one_answer() -> None:
    """Upstream's model sends all text in every piece: the answer is the last piece; else it is their sum."""
    repeating, new = Heard(), Heard()
    for text in ("a", "ab", "abc"):
        repeating.take(Part(text), 1.0)
    for text in ("a", "b", "c"):
        new.take(Part(text), 1.0)
    same = Heard(texts=["x", "x"])
    assert ("abc", "abc", "xx") == (repeating.text, new.text, same.text)


def test_a_character_that_came_in_part_is_no_new_text() -> None:
    """A stream that repeats itself may put another character in the place of the one that was cut."""
    cut = Heard(texts=["caf", "caf\ufffd", "caf\u00e9", "caf\u00e9 au lait"])
    ended = Heard(texts=["so", "so STO", "so "])
    assert (False, "caf\u00e9 au lait", False) == (cut.adds, cut.text, ended.adds)


def test_pieces_that_grow_are_new_text_where_the_server_adds_elsewhere() -> None:
    """Two pieces, 1 and 10, are 110 of a server that repeats nothing: another answer, or the interface, says so."""
    growing, plain, openai = Heard(texts=["1", "10"]), Heard(texts=["a", "b"]), Heard(texts=["1", "10"])
    openai.may_repeat = False
    assert (False, True, True) == (growing.adds, plain.adds, openai.adds)
    assert ("10", "110", "110") == (growing.said(adds=False), growing.said(adds=plain.adds), openai.text)
