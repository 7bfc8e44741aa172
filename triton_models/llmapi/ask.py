"""One request as a typed value, read from the input tensors and checked before anything runs.

Triton checks declared types and the *number* of inputs only, so a request without ``text_input`` but with one
optional input reaches the model. Everything is therefore checked here again, with texts meant for the client.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tensors = Callable[[str], Any]
"""Gives the numpy array of an input by name, or None when the request does not have it."""

DEFAULT_MAX_TOKENS = 32
"""What TensorRT-LLM's own ``SamplingParams`` takes when nothing is said."""

_DIGITS = 18
"""Of the longest time-out, some thirty thousand years."""
_KINDS = {bool: "b", int: "iu", float: "f", str: "OSU"}
_KIND_NAMES = {bool: "a boolean", int: "a whole number", float: "a number", str: "a string"}


INVALID, BUSY, CANCELLED, STOPPED = "INVALID_ARG", "UNAVAILABLE", "CANCELLED", "INTERNAL"
"""Names of Triton's status codes."""


class Refused(Exception):
    """A request cannot be served, or not to its end; the text is for the client, ``status`` is Triton's code."""

    def __init__(self, text: str, status: str = INVALID) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Lora:
    """An adapter to apply; the path is the server's."""

    number: int
    name: str
    path: str
    source: str
    """``hf`` or ``nemo``."""


@dataclass(frozen=True)
class Ask:
    """What a client asked for; None where it left the choice to the runtime."""

    prompt: str
    streaming: bool = False
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float | None = None
    """None or 0 without ``top_k`` and ``top_p`` is greedy."""
    top_k: int | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    best_of: int = 1
    stop: tuple[str, ...] = ()
    exclude_input: bool = False
    """Whether a whole (not streamed) answer leaves out the prompt; a stream never repeats it."""
    performance: bool = False
    finish_reason: bool = False
    stop_reason: bool = False
    cumulative_logprob: bool = False
    lora: Lora | None = None
    seconds: float | None = None
    """In which the answer is wanted whole."""

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        unset = self.temperature is None and self.top_k is None and self.top_p is None
        return unset or self.temperature == 0 or self.top_k == 1


def read_ask(tensors: Tensors) -> Ask:
    """Read and check a request; raises ``Refused`` with a text for the client."""

    def flag(name: str) -> bool:
        return bool(_scalar(tensors, name, bool))

    return Ask(
        prompt=_prompt(tensors),
        streaming=flag("streaming"),
        max_tokens=_count(tensors, "sampling_param_max_tokens", least=1, default=DEFAULT_MAX_TOKENS),
        temperature=_number(tensors, "sampling_param_temperature", low=0.0),
        top_k=_top_k(tensors),
        top_p=_top_p(tensors),
        frequency_penalty=_number(tensors, "sampling_param_frequency_penalty"),
        presence_penalty=_number(tensors, "sampling_param_presence_penalty"),
        seed=_scalar(tensors, "sampling_param_seed", int),
        best_of=_count(tensors, "sampling_param_best_of", least=1, default=1),
        stop=_stop(tensors),
        exclude_input=flag("sampling_param_exclude_input_from_output"),
        performance=flag("sampling_param_return_perf_metrics"),
        finish_reason=flag("return_finish_reason"),
        stop_reason=flag("return_stop_reason"),
        cumulative_logprob=flag("return_cumulative_logprob"),
        lora=_lora(tensors),
    )


def wants_stop(tensors: Tensors) -> bool:
    """Whether the request asks to cancel the running one of the same id."""
    return bool(_scalar(tensors, "stop", bool))


def time_out(microseconds: int, parameters: str) -> float | None:
    """Return the seconds in which a request wants its answer whole; None when it may take as long as it takes.

    Over gRPC it is the request's own ``timeout``; over HTTP ``generate`` leaves the JSON key among the ``parameters``.
    Both are in microseconds. Raises ``Refused`` for what is no such number.
    """
    given = microseconds or json.loads(parameters or "{}").get("timeout", 0)
    whole = int(given) if isinstance(given, float) and given.is_integer() else given
    text = str(whole)
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise Refused(f"timeout must be a whole number of microseconds, got {given!r:.40}")
    value = int(text)
    return value / 1e6 if value else None


def _prompt(tensors: Tensors) -> str:
    texts = _texts(tensors, "text_input")
    if texts is None:
        raise Refused("text_input is required: the prompt, one string")
    if len(texts) != 1:
        raise Refused(f"text_input takes one prompt a request, got {len(texts)}; send one request for each")
    if not texts[0]:
        raise Refused("text_input is empty")
    return texts[0]


def _stop(tensors: Tensors) -> tuple[str, ...]:
    words = _texts(tensors, "sampling_param_stop") or ()
    if "" in words:
        raise Refused("sampling_param_stop holds an empty string, which would end every answer at once")
    return words


def _top_k(tensors: Tensors) -> int | None:
    value: int | None = _scalar(tensors, "sampling_param_top_k", int)
    if value is not None and value < 0:
        raise Refused(f"sampling_param_top_k must be 0 (no limit) or more, got {value}")
    return value


def _top_p(tensors: Tensors) -> float | None:
    value = _number(tensors, "sampling_param_top_p")
    if value is not None and not 0.0 < value <= 1.0:
        raise Refused(f"sampling_param_top_p must be above 0 and at most 1, got {value:g}")
    return value


def _lora(tensors: Tensors) -> Lora | None:
    number = _scalar(tensors, "lora_id", int)
    name, path = _scalar(tensors, "lora_name", str), _scalar(tensors, "lora_path", str)
    source = _scalar(tensors, "lora_ckpt_source", str)
    given = {"lora_id": number, "lora_name": name, "lora_path": path}
    if number is None and name is None and path is None and source is None:
        return None
    missing = [key for key, value in given.items() if value is None]
    if number is None or name is None or path is None:
        raise Refused(f"lora_id, lora_name and lora_path come together; missing: {', '.join(missing)}")
    if source not in (None, "hf", "nemo"):
        raise Refused(f"lora_ckpt_source must be hf or nemo, got {source!r}")
    return Lora(number=number, name=name, path=path, source=source or "hf")


def _count(tensors: Tensors, name: str, *, least: int, default: int) -> int:
    value: int | None = _scalar(tensors, name, int)
    if value is None:
        return default
    if value < least:
        raise Refused(f"{name} must be at least {least}, got {value}")
    return value


def _number(tensors: Tensors, name: str, low: float = -math.inf) -> float | None:
    value: float | None = _scalar(tensors, name, float)
    if value is None:
        return None
    if not math.isfinite(value) or value < low:
        bound = f"a finite number of at least {low:g}" if math.isfinite(low) else "a finite number"
        raise Refused(f"{name} must be {bound}, got {value:g}")
    return value


def _scalar(tensors: Tensors, name: str, kind: type) -> Any:
    array = tensors(name)
    if array is None:
        return None
    if array.dtype.kind not in _KINDS[kind]:
        raise Refused(f"{name} must be {_KIND_NAMES[kind]}, got a tensor of {array.dtype}")
    if array.size != 1:
        raise Refused(f"{name} takes one value, got {array.size}")
    value = array.reshape(-1)[0]
    return _text(name, value) if kind is str else kind(value)


def _texts(tensors: Tensors, name: str) -> tuple[str, ...] | None:
    array = tensors(name)
    if array is None:
        return None
    if array.dtype.kind not in _KINDS[str]:
        raise Refused(f"{name} must be a string, got a tensor of {array.dtype}")
    return tuple(_text(name, value) for value in array.reshape(-1))


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8: byte {error.start} cannot be decoded") from None
