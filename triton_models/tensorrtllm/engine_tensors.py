"""Requests as the backend reads them, row by row, and the tensors of its responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from ask import Refused
from engine_setup import EngineSetup
from runtime import Performance

_COST = {
    "kv_cache_alloc_new_blocks": "kv_new_blocks", "kv_cache_reused_blocks": "kv_reused_blocks",
    "kv_cache_alloc_total_blocks": "kv_total_blocks", "arrival_time_ns": "arrival_ns",
    "first_scheduled_time_ns": "first_scheduled_ns", "first_token_time_ns": "first_token_ns",
    "last_token_time_ns": "last_token_ns", "acceptance_rate": "acceptance_rate",
    "total_accepted_draft_tokens": "accepted_draft_tokens", "total_draft_tokens": "draft_tokens",
}  # fmt: skip
_TYPES = {"TYPE_FP16": np.float16, "TYPE_BF16": np.float32}


@dataclass(frozen=True)
class Row:
    """One prompt of a request."""

    index: int
    prompt: tuple[int, ...]
    most: int
    """Tokens of the answer at most."""
    end: int
    """The token that ends it; -1 for none."""
    stops: tuple[tuple[int, ...], ...]
    bans: tuple[tuple[int, ...], ...]
    drafts: tuple[int, ...]
    bias: Any
    streaming: bool
    exclude_input: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    frequency_penalty: float
    presence_penalty: float
    min_tokens: int
    log_probs: bool
    performance: bool
    beams: int
    """Answers to search side by side; 1 searches nothing."""
    len_penalty: float
    """Power of the length that the sum of an answer's log probabilities is divided by."""
    lengths: tuple[bool, bool]
    """Whether the number of tokens of the prompt, and of the answer, is asked for."""


def wants_stop(request: Any) -> bool:
    """Whether the request ends the running ones of its id."""
    array = _array(request, "stop")
    return array is not None and bool(array.reshape(-1)[0])


def rows_of(request: Any, setup: EngineSetup) -> tuple[Row, ...]:
    """Return the rows of a request; raises ``Refused``."""
    ids, lengths, mosts = (_array(request, name) for name in ("input_ids", "input_lengths", "request_output_len"))
    if ids is None or lengths is None or mosts is None:
        raise Refused("input_ids, input_lengths and request_output_len are required")
    rows = ids.reshape(1, -1) if ids.ndim < 2 else ids
    lengths, mosts = lengths.reshape(-1), mosts.reshape(-1)
    if len(lengths) != len(rows) or len(mosts) != len(rows):
        raise Refused(f"input_lengths and request_output_len need a value for each of {len(rows)} rows")
    beams = int(_first(request, "beam_width", 1))
    if beams != setup.max_beam_width:
        raise Refused(f"Request beam width {beams} is not equal to max_beam_width {setup.max_beam_width}")
    streaming = bool(_first(request, "streaming", False))
    if beams > 1 and streaming:
        raise Refused(f"streaming with {beams} beams: which of them is best is known at the end")
    if beams > 1 and _array(request, "draft_input_ids") is not None:
        raise Refused(f"draft_input_ids with {beams} beams: drafts are of one answer")
    if streaming and not setup.decoupled:
        raise Refused("Streaming is only supported if model is deployed using decoupled mode.")
    return tuple(
        _row(request, setup, index, [int(one) for one in row[: int(lengths[index])]], int(mosts[index]), streaming)
        for index, row in enumerate(rows)
    )


def _row(request: Any, setup: EngineSetup, index: int, prompt: list[int], most: int, streaming: bool) -> Row:
    if not prompt or min(prompt) < 0 or max(prompt) >= setup.vocabulary:
        raise Refused(f"row {index}: input_ids must be 1 or more tokens from 0 to {setup.vocabulary - 1}")
    if most < 1:
        raise Refused(f"row {index}: request_output_len must be at least 1, got {most}")

    def one(name: str, default: Any) -> Any:
        array = _array(request, name)
        flat = None if array is None else array.reshape(-1)
        return default if flat is None or not flat.size else flat[min(index, flat.size - 1)].item()

    bias = _array(request, "embedding_bias")
    drafts = _array(request, "draft_input_ids")
    return Row(
        index=index,
        prompt=tuple(prompt),
        most=most,
        end=int(one("end_id", -1)),
        stops=_words(request, "stop_words_list", index),
        bans=_words(request, "bad_words_list", index),
        drafts=() if drafts is None else tuple(int(token) for token in drafts.reshape(len(drafts), -1)[index]),
        bias=None if bias is None or not bias.size else bias.reshape(-1, bias.shape[-1])[index],
        streaming=streaming,
        exclude_input=bool(one("exclude_input_in_output", setup.exclude_input)),
        temperature=float(one("temperature", 0.0)),
        top_k=int(one("runtime_top_k", 0)),
        top_p=float(one("runtime_top_p", 1.0)),
        seed=int(one("seed", one("random_seed", 0))),
        frequency_penalty=float(one("frequency_penalty", 0.0)),
        presence_penalty=float(one("presence_penalty", 0.0)),
        min_tokens=int(one("min_tokens", 0)),
        log_probs=bool(one("return_log_probs", False)),
        performance=bool(one("return_perf_metrics", False)),
        beams=setup.max_beam_width,
        len_penalty=float(one("len_penalty", 0.0)),
        lengths=(bool(one("return_num_input_tokens", False)), bool(one("return_num_output_tokens", False))),
    )


def _words(request: Any, name: str, index: int) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of a word list: all ids in its first row, where each ends in the second."""
    array = _array(request, name)
    if array is None or not array.size:
        return ()
    lists = array.reshape(-1, 2, array.shape[-1])
    flat, ends = lists[min(index, len(lists) - 1)]
    found, start = [], 0
    for end in (int(one) for one in ends if one > 0):
        found.append(tuple(int(token) for token in flat[start:end]))
        start = end
    return tuple(found)


class Replies:
    """Builds responses; ``types`` are the data types that the model declares for its outputs."""

    def __init__(self, types: Mapping[str, str]) -> None:
        """Take them."""
        self._types = types

    def tokens(self, row: Row, ids: list[int], log_probs: list[float] | None = None) -> Any:
        """Return a response with tokens."""
        return pb_utils.InferenceResponse(output_tensors=self._tokens(row, [ids], log_probs and [log_probs]))

    def last(
        self, row: Row, ids: list[list[int]], log_probs: list[list[float]], written: int, cost: Performance
    ) -> Any:
        """Return the response that ends an answer of ``written`` tokens, with what it cost where that was asked.

        ``ids`` and ``log_probs`` have those of every beam, best first.
        """
        tensors = self._tokens(row, ids, log_probs)
        if row.performance:
            tensors += [self._one(name, getattr(cost, field)) for name, field in _COST.items() if name in self._types]
        counts = {"num_input_tokens": len(row.prompt), "num_output_tokens": written}
        for (name, count), asked in zip(counts.items(), row.lengths, strict=True):
            if asked and name in self._types:
                tensors.append(self._one(name, count))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def error(self, refused: Refused) -> Any:
        """Return an error."""
        code = getattr(pb_utils.TritonError, refused.status)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(refused), code))

    def _tokens(self, row: Row, ids: list[list[int]], log_probs: list[list[float]] | None) -> list[Any]:
        tensors = [
            pb_utils.Tensor("output_ids", filled(ids, np.int32, max(0, row.end))),
            pb_utils.Tensor("sequence_length", np.array([[len(one) for one in ids]], dtype=np.int32)),
            self._one("batch_index", row.index),
        ]
        if "sequence_index" in self._types:
            tensors.append(self._one("sequence_index", 0))
        if log_probs is not None and row.log_probs:
            sums = np.array([[sum(one) for one in log_probs]], dtype=np.float32)
            tensors.append(pb_utils.Tensor("cum_log_probs", sums))
            tensors.append(pb_utils.Tensor("output_log_probs", filled(log_probs, np.float32, 0.0)))
        return tensors

    def _one(self, name: str, value: Any) -> Any:
        kind = _TYPES.get(self._types[name]) or pb_utils.triton_string_to_numpy(self._types[name])
        return pb_utils.Tensor(name, np.array([[value]], dtype=kind))


def filled(rows: list[list[Any]], kind: Any, fill: float) -> Any:
    """Return (1, rows, longest) with the shorter ones filled up."""
    longest = max(map(len, rows))
    return np.array([[[*row, *[fill] * (longest - len(row))] for row in rows]], dtype=kind)


def _array(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def _first(request: Any, name: str, default: Any) -> Any:
    array = _array(request, name)
    return default if array is None or not array.size else array.reshape(-1)[0].item()
