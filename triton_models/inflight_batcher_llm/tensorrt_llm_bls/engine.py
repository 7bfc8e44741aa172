"""What the BLS model asks of the other three models, tensor by tensor."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

from given import Refused, array_of, number_of, tensor_of

if TYPE_CHECKING:
    from asked import Asked

_PREPARED = {
    "QUERY": "text_input", "DECODER_QUERY": "decoder_text_input", "REQUEST_OUTPUT_LEN": "max_tokens",
    "BAD_WORDS_DICT": "bad_words", "STOP_WORDS_DICT": "stop_words", "EMBEDDING_BIAS_WORDS": "embedding_bias_words",
    "EMBEDDING_BIAS_WEIGHTS": "embedding_bias_weights", "END_ID": "end_id", "PAD_ID": "pad_id",
    "PROMPT_TABLE_EXTRA_ID": "prompt_table_extra_id",
}  # fmt: skip
"""Inputs of preprocessing by those of the client."""
_PASSED = {
    "INPUT_ID": "input_ids", "REQUEST_INPUT_LEN": "input_lengths", "DECODER_INPUT_ID": "decoder_input_ids",
    "REQUEST_DECODER_INPUT_LEN": "decoder_input_lengths", "REQUEST_OUTPUT_LEN": "request_output_len",
    "STOP_WORDS_IDS": "stop_words_list", "BAD_WORDS_IDS": "bad_words_list", "EMBEDDING_BIAS": "embedding_bias",
    "OUT_END_ID": "end_id", "OUT_PAD_ID": "pad_id", "OUT_PROMPT_TABLE_EXTRA_IDS": "prompt_table_extra_ids",
}  # fmt: skip
"""Inputs of the engine by the outputs of preprocessing."""
_RENAMED = {"top_k": "runtime_top_k", "top_p": "runtime_top_p", "length_penalty": "len_penalty"}
_SAME = (
    "temperature", "repetition_penalty", "min_tokens", "presence_penalty", "frequency_penalty", "seed", "random_seed",
    "return_log_probs", "return_context_logits", "return_generation_logits", "return_perf_metrics",
    "num_return_sequences", "beam_width", "prompt_embedding_table", "prompt_vocab_size", "lora_task_id",
    "lora_weights", "lora_config", "guided_decoding_guide_type", "guided_decoding_guide", "return_num_input_tokens",
    "return_num_output_tokens",
)  # fmt: skip
"""Inputs that the engine takes from the client by the same name."""
_AS_THEY_ARE = ("prompt_embedding_table", "lora_weights")
"""Those whose type numpy may not have."""
_TOKENS = ("output_ids", "sequence_length")
_OF_FLAG = {
    "return_log_probs": ("cum_log_probs", "output_log_probs"),
    "return_context_logits": ("context_logits",),
    "return_generation_logits": ("generation_logits",),
    "return_perf_metrics": (
        "kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks", "arrival_time_ns",
        "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns", "acceptance_rate",
        "total_accepted_draft_tokens", "total_draft_tokens",
    ),
    "return_num_input_tokens": ("num_input_tokens",),
    "return_num_output_tokens": ("num_output_tokens",),
}  # fmt: skip
"""Outputs that a request gets when it asks for them."""
_ALWAYS = ("batch_index", "sequence_index")


@dataclass(frozen=True)
class Setup:
    """The names of the engines' models, and the tensors that this model has in its release."""

    model: str
    draft: str | None
    inputs: frozenset[str]
    outputs: Mapping[str, Any]


class Engine:
    """The other models, for one request."""

    def __init__(self, setup: Setup, request: Any, asked: Asked) -> None:
        """Turn the prompts into tokens; raises ``Refused`` with what preprocessing says."""
        self.name = setup.model
        self.draft = setup.draft
        self._asked = asked
        self._identity = f"{request.request_id() or 'bls'}-{uuid.uuid4().hex[:12]}"
        self.outputs = [*_ALWAYS, *(name for flag, names in _OF_FLAG.items() if _on(request, flag) for name in names)]
        self.outputs = [name for name in self.outputs if name in setup.outputs]
        prepared = {name: array_of(request, source) for name, source in _PREPARED.items() if source in setup.inputs}
        tensors = [pb_utils.Tensor(name, array) for name, array in prepared.items() if array is not None]
        said = _ask("preprocessing", tensors, [name for name in _PASSED if name in _known(setup)])
        self.tokens = {name: _array(said, source) for source, name in _PASSED.items() if source in _known(setup)}
        self._passed = dict(_passed(request, setup))

    def responses(self) -> Iterator[Any]:
        """Ask the engine and yield its responses."""
        rows = self._asked.rows
        flags = {"streaming": _flags(rows, on=self._asked.stream), "exclude_input_in_output": _flags(rows, on=True)}
        tensors = _tensors(self.tokens) | self._passed | _tensors(flags)
        yield from _ask_all(self.name, list(tensors.values()), [*_TOKENS, *self.outputs], self._identity)

    def continued(
        self, name: str, ids: list[int], most: int, more: Mapping[str, Any], wanted: tuple[str, ...] = ()
    ) -> tuple[list[int], Any]:
        """Ask one of the engines to go on from tokens; return the new tokens of its answer, and its response.

        ``more`` are tensors by name, in place of the client's.
        """
        begun = {
            "input_ids": np.array([ids], dtype=np.int32),
            "input_lengths": np.array([[len(ids)]], dtype=np.int32),
            "request_output_len": np.array([[most]], dtype=np.int32),
            "streaming": _flags(1, on=False),
            "exclude_input_in_output": _flags(1, on=True),
        }
        tensors = _tensors(self.tokens | begun) | self._passed | dict(more)
        outputs = [*_TOKENS, *wanted, *(self.outputs if name == self.name else ())]
        said = _ask_all(name, list(tensors.values()), outputs, self._identity)
        found = [one for one in said if self.has_tokens(one)]
        if not found:
            raise Refused(f"model {name} ended the request without an answer")
        return self.answer_of(found[-1])[0], found[-1]

    def stop(self, responses: Iterator[Any]) -> None:
        """Tell the engine that nobody waits for the answer any more: a request of the same id with ``stop``.

        What still comes of it is taken and forgotten: Triton would wait for a reader when the server is stopped.
        """
        stops = {"input_ids": [[0]], "input_lengths": [[1]], "request_output_len": [[1]]}
        tensors = [tensor_of(name, values, np.int32) for name, values in stops.items()]
        tensors.append(tensor_of("stop", [[True]], bool))
        for _ in _ask_all(self.name, tensors, list(_TOKENS), self._identity, patient=True):
            pass
        with suppress(Refused):  # that it was stopped
            for _ in responses:
                pass

    def decode(self, ids: list[int]) -> str:
        """Return the text of tokens, as postprocessing has it."""
        return self.decode_all([ids])[0]

    def decode_all(self, rows: list[list[int]]) -> list[str]:
        """Return the text of several rows of tokens, asked for at once."""
        width = max(2, *(len(row) for row in rows))  # a piece of one token alone would be taken for one of a stream
        tokens = np.zeros((1, len(rows), width), dtype=np.int32)
        for place, row in enumerate(rows):
            tokens[0, place, : len(row)] = row
        lengths = np.array([[len(row) for row in rows]], dtype=np.int32)
        given = _tensors({"TOKENS_BATCH": tokens, "SEQUENCE_LENGTH": lengths})
        said = _ask("postprocessing", list(given.values()), ["OUTPUT"])
        return [bytes(one).decode("utf-8") for one in _array(said, "OUTPUT").reshape(-1)]

    def prompt_ids(self, row: int) -> list[int]:
        """Return the tokens of a prompt."""
        length = int(self.tokens["input_lengths"].reshape(-1)[row])
        return [int(one) for one in self.tokens["input_ids"][row][:length]]

    @staticmethod
    def has_tokens(response: Any) -> bool:
        """Whether a response brings any: the last one of a stream may not."""
        return pb_utils.get_output_tensor_by_name(response, "output_ids") is not None

    @staticmethod
    def answer_of(response: Any) -> list[list[int]]:
        """Return the tokens that a response brings, of every beam."""
        ids, lengths = _array(response, "output_ids"), _array(response, "sequence_length").reshape(-1)
        return [
            beam[: int(length)].tolist() for beam, length in zip(ids.reshape(-1, ids.shape[-1]), lengths, strict=True)
        ]


def _known(setup: Setup) -> frozenset[str]:
    """Return the outputs of preprocessing that its release has."""
    extra = set() if "prompt_table_extra_id" in setup.inputs else {"OUT_PROMPT_TABLE_EXTRA_IDS"}
    return frozenset(_PASSED) - extra


def _passed(request: Any, setup: Setup) -> Iterator[tuple[str, Any]]:
    """Yield the client's inputs as the engine calls them, with the dimension that a declared scalar has lost."""
    for source, name in {**{one: one for one in _SAME}, **_RENAMED}.items():
        tensor = pb_utils.get_input_tensor_by_name(request, source) if source in setup.inputs else None
        if tensor is None:
            continue
        if source in _AS_THEY_ARE:
            yield name, tensor
            continue
        array = tensor.as_numpy()
        yield name, pb_utils.Tensor(name, array if array.ndim > 1 else array.reshape(-1, 1))


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pb_utils.Tensor(name, array) for name, array in arrays.items()}


def _flags(rows: int, *, on: bool) -> Any:
    return np.full((rows, 1), on, dtype=bool)


def _ask(model: str, tensors: list[Any], wanted: list[str]) -> Any:
    response = pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=wanted).exec()
    return _checked(model, response)


def _ask_all(
    model: str, tensors: list[Any], wanted: list[str], identity: str, *, patient: bool = False
) -> Iterator[Any]:
    request = pb_utils.InferenceRequest(
        model_name=model, request_id=identity, inputs=tensors, requested_output_names=wanted
    )
    for response in request.exec(decoupled=True):
        if response.has_error() and patient:
            continue
        yield _checked(model, response)


def _checked(model: str, response: Any) -> Any:
    if response.has_error():
        raise Refused(f"{model}: {response.error().message()}")
    return response


def _array(response: Any, name: str) -> Any:
    tensor = pb_utils.get_output_tensor_by_name(response, name)
    if tensor is None:
        raise Refused(f"a response lacks {name}")
    return tensor.as_numpy()


def _on(request: Any, name: str) -> bool:
    return bool(number_of(request, name, default=False))
