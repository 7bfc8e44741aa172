"""From an answer to Triton's responses: exactly the outputs that ``config.pbtxt`` declares, in its types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from ask import Ask, Refused
from runtime import Finish, Performance

_PERFORMANCE: Mapping[str, Callable[[Performance], float]] = {
    "kv_cache_reused_block": lambda cost: cost.kv_reused_blocks,
    "kv_cache_missed_block": lambda cost: cost.kv_missed_blocks,
    "kv_cache_alloc_new_blocks": lambda cost: cost.kv_new_blocks,
    "kv_cache_alloc_total_blocks": lambda cost: cost.kv_total_blocks,
    "kv_cache_hit_rate": lambda cost: cost.kv_hit_rate,
    "arrival_time_ns": lambda cost: cost.arrival_ns,
    "first_scheduled_time_ns": lambda cost: cost.first_scheduled_ns,
    "first_token_time_ns": lambda cost: cost.first_token_ns,
    "last_token_time_ns": lambda cost: cost.last_token_ns,
    "acceptance_rate": lambda cost: cost.acceptance_rate,
    "total_accepted_draft_tokens": lambda cost: cost.accepted_draft_tokens,
    "total_draft_tokens": lambda cost: cost.draft_tokens,
}


class Replies:
    """Builds responses for one model; ``output_types`` are the data types of its outputs."""

    def __init__(self, output_types: Mapping[str, str]) -> None:
        self._types = output_types

    def piece(self, text: str) -> Any:
        """Build a response with the next piece of a stream."""
        return self._response({"text_output": text})

    def last(self, ask: Ask, text: str, finish: Finish) -> Any:
        """Build the last (for a whole answer: the only) response, with every output the client asked for."""
        shown = text if ask.streaming or ask.exclude_input else ask.prompt + text
        values: dict[str, Any] = {"text_output": shown}
        if ask.finish_reason:
            values["finish_reason"] = finish.reason
        if ask.stop_reason:
            values["stop_reason"] = finish.stop_reason
        if ask.cumulative_logprob:
            values["cumulative_logprob"] = finish.cumulative_logprob
        if ask.performance:
            values |= {name: read(finish.performance) for name, read in _PERFORMANCE.items()}
        return self._response(values)

    def error(self, refused: Refused) -> Any:
        """Build an error response."""
        status = getattr(pb_utils.TritonError, refused.status)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(refused), status))

    def _response(self, values: Mapping[str, Any]) -> Any:
        tensors = [self._tensor(name, value) for name, value in values.items() if name in self._types]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _tensor(self, name: str, value: Any) -> Any:
        dtype = pb_utils.triton_string_to_numpy(self._types[name])
        text = str(value).encode("utf-8") if dtype is np.object_ else value
        return pb_utils.Tensor(name, np.array([text], dtype=dtype))
