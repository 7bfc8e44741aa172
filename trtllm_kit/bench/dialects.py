"""How each interface is asked for a stream, and what its events say. Pure.

Sources: Triton's generate extension with the tensors of both model repositories (``tensorrt_llm`` of the LLM API;
``ensemble`` and ``tensorrt_llm_bls`` of the engine backend), and OpenAI's completions and chat, as trtllm-serve and
Dynamo speak them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trtllm_kit.bench.http_stream import Malformed


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    prompt: str
    tokens: int
    """Most tokens of the answer."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    greedy: bool = False
    """Always the likeliest token, whatever the server would do by itself."""
    whole: bool = False
    """In one piece, where the interface has such answers as events; OpenAI's has not, and streams all the same."""
    identity: str = ""
    """A number that no other request has: by it an ensemble joins the pieces of a character that came apart."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one event says."""

    text: str = ""
    finish: str = ""
    """Why the answer ended; set in one of the last events."""
    answer_tokens: int | None = None
    prompt_tokens: int | None = None
    """The server's own counts, where it tells them."""
    error: str = ""
    done: bool = False
    """The stream says that it is complete."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One interface."""

    name: str
    model: str
    """What it usually calls the model."""
    path: Callable[[str], str]
    """Path of a URL, from the model's name as URLs spell it."""
    body: Callable[[str, Ask, bool], dict[str, Any]]
    """What is posted, from the model's name; the flag asks for exactly so many tokens, past any end."""
    read: Callable[[bytes], Part]
    """What an event says; raises ``Malformed``."""
    says_done: bool
    """Whether a stream that is complete says so in an event of its own."""
    may_repeat: bool = False
    """Whether there are servers whose pieces repeat the answer so far, as upstream's llmapi model does."""
    batched: bool = False
    """Whether tensors over gRPC have a dimension of the batch in front."""


def _triton_path(model: str) -> str:
    return f"/v2/models/{model}/generate_stream"


def _llmapi_body(_model: str, ask: Ask, _exact: bool) -> dict[str, Any]:  # no tensor of it keeps an answer going
    chosen = {
        "sampling_param_temperature": ask.temperature,
        "sampling_param_top_k": 1 if ask.greedy else None,
        "sampling_param_top_p": ask.top_p,
        "sampling_param_seed": ask.seed,
    }
    return {
        "text_input": ask.prompt,
        "streaming": not ask.whole,
        "return_finish_reason": True,
        "sampling_param_exclude_input_from_output": True,
        "sampling_param_max_tokens": ask.tokens,
    } | _given(chosen)


def _legacy_body(_model: str, ask: Ask, exact: bool) -> dict[str, Any]:
    chosen = {
        "temperature": ask.temperature,
        "top_k": 1 if ask.greedy else None,
        "top_p": ask.top_p,
        "seed": ask.seed,
        "min_tokens": ask.tokens if exact else None,
        "id": ask.identity or None,
    }
    asked = {
        "text_input": ask.prompt,
        "max_tokens": ask.tokens,
        "stream": not ask.whole,
        "exclude_input_in_output": True,
    }
    return asked | _given(chosen)


def _openai_body(model: str, ask: Ask, exact: bool) -> dict[str, Any]:
    chosen = {
        "temperature": 0.0 if ask.greedy else ask.temperature,
        "top_p": ask.top_p,
        "seed": ask.seed,
        "ignore_eos": exact or None,
        "min_tokens": ask.tokens if exact else None,
    }
    asked = {"model": model, "max_tokens": ask.tokens, "stream": True, "stream_options": {"include_usage": True}}
    return asked | _given(chosen)


def _completions_body(model: str, ask: Ask, exact: bool) -> dict[str, Any]:
    return {"prompt": ask.prompt} | _openai_body(model, ask, exact)


def _chat_body(model: str, ask: Ask, exact: bool) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": ask.prompt}]} | _openai_body(model, ask, exact)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _read_triton(data: bytes) -> Part:
    document = _document(data)
    if "error" in document:
        return Part(error=str(document["error"]))
    finish = document.get("finish_reason") or ""
    return Part(_text(document.get("text_output", "")), finish=_text(finish))


def _read_openai(data: bytes) -> Part:
    if data == b"[DONE]":
        return Part(done=True)
    document = _document(data)
    if document.get("error"):
        error = document["error"]
        return Part(error=str(error.get("message", error) if isinstance(error, dict) else error))
    usage = document.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(choice, dict):
        raise Malformed(f"choices: {str(choice)[:60]}")
    delta = choice.get("delta")
    said = _chat_text(delta) if isinstance(delta, dict) else choice.get("text")
    return Part(
        _text(said or ""),
        finish=_text(choice.get("finish_reason") or ""),
        answer_tokens=_count(counts.get("completion_tokens")),
        prompt_tokens=_count(counts.get("prompt_tokens")),
    )


def _chat_text(delta: dict[str, Any]) -> Any:
    """Return what a piece of a chat says: thinking and calls of tools are tokens that a user waits for, too."""
    said = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
    return said or (json.dumps(delta["tool_calls"]) if delta.get("tool_calls") else "")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str:
    if isinstance(value, list) and value:  # Triton shows a tensor of several elements as a list
        value = value[0]
    if not isinstance(value, str):
        raise Malformed(f"a text is {type(value).__name__}")
    return value


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed(f"an event is no JSON: {data[:60]!r}") from None
    if not isinstance(document, dict):
        raise Malformed(f"an event is no object: {data[:60]!r}")
    return document


DIALECTS = {
    one.name: one
    for one in (
        Dialect("triton", "tensorrt_llm", _triton_path, _llmapi_body, _read_triton, says_done=False, may_repeat=True),
        Dialect(
            "triton-legacy",
            "ensemble",
            _triton_path,
            _legacy_body,
            _read_triton,
            says_done=False,
            may_repeat=True,
            batched=True,
        ),
        Dialect("openai", "", lambda _: "/v1/completions", _completions_body, _read_openai, says_done=True),
        Dialect("openai-chat", "", lambda _: "/v1/chat/completions", _chat_body, _read_openai, says_done=True),
    )
}
"""The interfaces, by the name that ``--api`` takes."""
