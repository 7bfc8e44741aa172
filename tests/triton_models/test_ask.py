"""One request as a typed value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ask import Ask, Lora, Refused, read_ask, time_out, wants_stop


def read(**inputs: Any) -> Ask:
    """Read a request of numpy inputs."""
    return read_ask({name: np.asarray(value) for name, value in inputs.items()}.get)


def text(*values: str | bytes) -> Any:
    """Make a string tensor as Triton gives it."""
    return np.array([value if isinstance(value, bytes) else value.encode() for value in values], dtype=object)


def test_prompt_alone_is_enough() -> None:
    """A request with only a prompt is greedy, not streamed, repeats the prompt and takes 32 tokens."""
    ask = read(text_input=text("Grüße"))

    assert Ask(prompt="Grüße", max_tokens=32) == ask
    assert (True, False, False) == (ask.greedy, ask.streaming, ask.exclude_input)


def test_everything_is_read() -> None:
    """Every declared input finds its field."""
    ask = read(
        text_input=text("hi"),
        streaming=np.array([True]),
        sampling_param_max_tokens=np.array([7], np.int32),
        sampling_param_temperature=np.array([0.5], np.float32),
        sampling_param_top_k=np.array([40], np.int32),
        sampling_param_top_p=np.array([0.25], np.float32),
        sampling_param_frequency_penalty=np.array([-0.5], np.float32),
        sampling_param_presence_penalty=np.array([1.5], np.float32),
        sampling_param_seed=np.array([2**64 - 1], np.uint64),
        sampling_param_best_of=np.array([3], np.int32),
        sampling_param_stop=text("\n\n", "END"),
        sampling_param_exclude_input_from_output=np.array([True]),
        sampling_param_return_perf_metrics=np.array([True]),
        return_finish_reason=np.array([True]),
        return_stop_reason=np.array([True]),
        return_cumulative_logprob=np.array([True]),
        lora_id=np.array([4], np.uint64),
        lora_name=text("poet"),
        lora_path=text("/adapters/poet"),
        lora_ckpt_source=text("nemo"),
    )

    expected = Ask(
        prompt="hi",
        streaming=True,
        max_tokens=7,
        temperature=0.5,
        top_k=40,
        top_p=0.25,
        frequency_penalty=-0.5,
        presence_penalty=1.5,
        seed=2**64 - 1,
        best_of=3,
        stop=("\n\n", "END"),
        exclude_input=True,
        performance=True,
        finish_reason=True,
        stop_reason=True,
        cumulative_logprob=True,
        lora=Lora(4, "poet", "/adapters/poet", "nemo"),
    )
    assert expected == ask
    assert not ask.greedy


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ({}, "text_input is required: the prompt, one string"),
        ({"text_input": text("a", "b")}, "text_input takes one prompt a request, got 2"),
        ({"text_input": text("")}, "text_input is empty"),
        ({"text_input": text(b"\xff\xfe")}, "text_input is not UTF-8: byte 0 cannot be decoded"),
        ({"text_input": np.array([1.0])}, "text_input must be a string, got a tensor of float64"),
        ({"sampling_param_max_tokens": np.array([0])}, "sampling_param_max_tokens must be at least 1, got 0"),
        ({"sampling_param_max_tokens": np.array([1.5])}, "must be a whole number, got a tensor of float64"),
        ({"sampling_param_max_tokens": np.array([1, 2])}, "sampling_param_max_tokens takes one value, got 2"),
        ({"sampling_param_temperature": np.array([-0.1])}, "must be a finite number of at least 0, got -0.1"),
        ({"sampling_param_temperature": np.array([np.nan])}, "must be a finite number of at least 0, got nan"),
        ({"sampling_param_top_p": np.array([0.0])}, "sampling_param_top_p must be above 0 and at most 1, got 0"),
        ({"sampling_param_top_p": np.array([1.5])}, "sampling_param_top_p must be above 0 and at most 1, got 1.5"),
        ({"sampling_param_top_k": np.array([-1])}, "sampling_param_top_k must be 0 (no limit) or more, got -1"),
        ({"sampling_param_presence_penalty": np.array([np.inf])}, "must be a finite number, got inf"),
        ({"sampling_param_best_of": np.array([0])}, "sampling_param_best_of must be at least 1, got 0"),
        ({"sampling_param_stop": text("ok", "")}, "sampling_param_stop holds an empty string"),
        ({"streaming": np.array([1])}, "streaming must be a boolean, got a tensor of int64"),
        ({"lora_id": np.array([1])}, "lora_id, lora_name and lora_path come together; missing: lora_name, lora_path"),
        (
            {"lora_id": np.array([1]), "lora_name": text("a"), "lora_path": text("b"), "lora_ckpt_source": text("c")},
            "lora_ckpt_source must be hf or nemo, got 'c'",
        ),
    ],
)
def test_bad_requests_are_refused_with_the_value(inputs: dict[str, Any], complaint: str) -> None:
    """Each wrong input is refused as INVALID_ARG with its name and value."""
    whole = ({"text_input": text("hi")} if inputs and "text_input" not in inputs else {}) | inputs

    with pytest.raises(Refused) as refused:
        read(**whole)

    assert complaint in str(refused.value)
    assert "INVALID_ARG" == refused.value.status


@pytest.mark.parametrize(
    ("choice", "greedy"),
    [
        ({}, True),
        ({"temperature": 0.0, "top_p": 0.9}, True),
        ({"top_k": 1, "temperature": 2.0}, True),
        ({"temperature": 1.0}, False),
        ({"top_p": 0.9}, False),
        ({"top_k": 5}, False),
    ],
)
def test_greedy(choice: dict[str, Any], greedy: bool) -> None:
    """Nothing set, temperature 0 or top_k 1 is greedy; any other choice samples."""
    assert greedy == Ask(prompt="x", **choice).greedy


def test_stop_is_read_on_its_own() -> None:
    """A stop request needs no prompt."""
    assert wants_stop({"stop": np.array([True])}.get)
    assert not wants_stop({"stop": np.array([False])}.get)
    assert not wants_stop({}.get)


@pytest.mark.parametrize(
    ("microseconds", "parameters", "seconds"),
    [
        (0, "", None),
        (0, '{"timeout": 0}', None),
        (250_000, '{"timeout": 9}', 0.25),
        (0, '{"timeout": "1500000"}', 1.5),
        (0, '{"timeout": 2e6}', 2.0),
    ],
)
def test_a_time_out_is_in_microseconds(microseconds: int, parameters: str, seconds: float | None) -> None:
    """Of the request's own field, else of its parameters, as a number or a text; 0 and nothing are none."""
    assert seconds == time_out(microseconds, parameters)


@pytest.mark.parametrize("given", ["true", "1.5", "-1", '"soon"', "1e999", "[5]", "null", '"\\u0663"', "9" * 400])
def test_what_is_no_time_out_is_refused(given: str) -> None:
    """A truth, a fraction, a time before now, words, no end of time, a list, nothing, other digits, too many digits."""
    with pytest.raises(Refused, match="timeout must be a whole number of microseconds, got ") as refused:
        time_out(0, f'{{"timeout": {given}}}')
    assert 120 > len(str(refused.value))
