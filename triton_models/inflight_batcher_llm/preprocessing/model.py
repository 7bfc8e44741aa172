"""Text to tokens: the first step of the ensemble, and what the BLS model asks first.

A request may hold several prompts, one a row; shorter ones are filled up, and ``REQUEST_INPUT_LEN`` says how long
each is. Every output that the ensemble passes on is in every response, with no element where nothing was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from given import Refused, array_of, error_of, flag_of, outputs_of, parameters_of, tensor_of, texts_of
from tokenizer import BadTokenizer, Tokenizer
from words import batch_of_lists, spellings, word_list

_PICTURES = ("IMAGE_BYTES", "IMAGE_URL", "VIDEO_BYTES")


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; raises with a reason when there is none."""
        parameters = parameters_of(args)
        self._types = outputs_of(args)
        self._special = flag_of(parameters, "add_special_tokens", default=True)
        if "tokenizer_dir" not in parameters:
            raise pb_utils.TritonModelException("config.pbtxt: parameter tokenizer_dir is missing")
        try:
            self._tokenizer = Tokenizer(Path(parameters["tokenizer_dir"]))
        except BadTokenizer as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer every request; one that cannot be read gets an error of its own."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            values = self._values(request)
        except Exception as error:  # noqa: BLE001  # the others of the batch are answered all the same
            return error_of(error)
        tensors = [tensor_of(name, value, self._types[name]) for name, value in values.items() if name in self._types]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _values(self, request: Any) -> dict[str, Any]:
        refused = [name for name in _PICTURES if array_of(request, name) is not None]
        if refused:
            raise Refused(f"{', '.join(refused)}: this repository serves text alone")
        prompts = [self._tokenizer.encode(row[0], special=self._special) for row in _required(request, "QUERY")]
        count = len(prompts)
        end, pad = self._ids(request, "END_ID", count), self._ids(request, "PAD_ID", count)
        lengths = [[len(prompt)] for prompt in prompts]
        decoder = texts_of(request, "DECODER_QUERY")
        begun = [[one[0]] for one in pad] if decoder is None else [self._begun(row[0]) for row in decoder]
        return {
            "INPUT_ID": _filled(prompts, pad),
            "REQUEST_INPUT_LEN": lengths,
            "DECODER_INPUT_ID": _filled(begun, pad),
            "REQUEST_DECODER_INPUT_LEN": [[len(one)] for one in begun],
            "REQUEST_OUTPUT_LEN": _rows(request, "REQUEST_OUTPUT_LEN", count),
            "STOP_WORDS_IDS": self._lists(request, "STOP_WORDS_DICT", count, self._more_ends(end)),
            "BAD_WORDS_IDS": self._lists(request, "BAD_WORDS_DICT", count),
            "EMBEDDING_BIAS": self._bias(request, count),
            "OUT_END_ID": end,
            "OUT_PAD_ID": pad,
            "OUT_PROMPT_TABLE_EXTRA_IDS": self._extra(request, prompts, count),
        }

    def _begun(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special=False)

    def _ids(self, request: Any, name: str, count: int) -> list[list[int]]:
        """Return the id of each row: the client's, else the tokenizer's; -1 where nothing ends an answer."""
        given = array_of(request, name)
        if given is not None:
            return [[int(one)] for one in np.broadcast_to(given.reshape(-1)[:count], count)]
        ends = self._tokenizer.end_ids
        own = (ends[0] if ends else -1) if name == "END_ID" else self._tokenizer.pad_id
        return [[own]] * count

    def _more_ends(self, end: list[list[int]]) -> list[list[tuple[int, ...]]]:
        """Return the model's other end tokens of each row: the engine knows a single one, so they are stop words."""
        return [[(one,) for one in self._tokenizer.end_ids if one != own] for (own,) in end]

    def _lists(
        self, request: Any, name: str, count: int, more: list[list[tuple[int, ...]]] | None = None
    ) -> np.ndarray:
        rows = texts_of(request, name) or [[]] * count
        if len(rows) != count:
            raise Refused(f"{name} has {len(rows)} rows, the request {count} prompts")
        lists = []
        for number, words in enumerate(rows):
            sequences = [one for word in words if word for one in spellings(self._tokenizer, word)]
            lists.append(word_list([*(more[number] if more else ()), *sequences]))
        return batch_of_lists(lists)

    def _bias(self, request: Any, count: int) -> np.ndarray:
        """Return what is added to the logits: (rows, vocabulary), or no column where nothing was asked."""
        words, weights = texts_of(request, "EMBEDDING_BIAS_WORDS"), array_of(request, "EMBEDDING_BIAS_WEIGHTS")
        if words is None and weights is None:
            return np.empty((count, 0), dtype=np.float32)
        if words is None or weights is None or [len(row) for row in words] != [row.size for row in weights]:
            raise Refused("EMBEDDING_BIAS_WORDS and EMBEDDING_BIAS_WEIGHTS come together, a weight for each word")
        bias = np.zeros((count, self._tokenizer.size), dtype=np.float32)
        for row, texts, values in zip(bias, words, weights, strict=True):
            for text, value in zip(texts, values.reshape(-1), strict=True):
                for one in self._tokenizer.encode(text, special=False):
                    row[one] += value
        return bias

    def _extra(self, request: Any, prompts: list[list[int]], count: int) -> np.ndarray:
        """Return the id of the prompt table at its tokens, which lie beyond the vocabulary; 0 elsewhere."""
        given = array_of(request, "PROMPT_TABLE_EXTRA_ID")
        if given is None:
            return np.empty((count, 0), dtype=np.uint64)
        width = max(len(prompt) for prompt in prompts)
        extra = np.zeros((count, width), dtype=np.uint64)
        for row, prompt, one in zip(extra, prompts, np.broadcast_to(given.reshape(-1), count), strict=True):
            row[: len(prompt)] = [one if token >= self._tokenizer.size else 0 for token in prompt]
        return extra


def _required(request: Any, name: str) -> list[list[str]]:
    rows = texts_of(request, name)
    if not rows or any(len(row) != 1 for row in rows):
        raise Refused(f"{name} takes one prompt a row")
    if any(not row[0] for row in rows):
        raise Refused(f"{name} is empty")
    return rows


def _rows(request: Any, name: str, count: int) -> np.ndarray:
    given = array_of(request, name)
    if given is None:
        raise Refused(f"{name} is required: the most tokens of the answer")
    if given.size != count:
        raise Refused(f"{name} has {given.size} values for {count} prompts")
    return given.reshape(count, -1)


def _filled(rows: list[list[int]], pad: list[list[int]]) -> np.ndarray:
    width = max(len(row) for row in rows)
    return np.array([row + fill * (width - len(row)) for row, fill in zip(rows, pad, strict=True)], dtype=np.int32)
