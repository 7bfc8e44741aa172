"""Speculative decoding with a draft model's engine: it proposes tokens, the model's engine keeps those it would say."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from asked import Asked
from engine import Engine
from given import Refused


def drafted(engine: Engine, asked: Asked) -> Any:
    """Return the model's last response with the tokens of the whole answer in place of its own.

    Each round the draft engine goes on for as many tokens as were asked for, and the model's engine for at most one
    more: it takes in one step every proposed token that it would have chosen itself, and its own next one.
    """
    if engine.draft is None:
        raise Refused("there is no draft model")
    prompt, ends = engine.prompt_ids(0), int(engine.tokens["end_id"].reshape(-1)[0])
    answer: list[int] = []
    while True:
        left = asked.max_tokens - len(answer)
        most = min(asked.drafts, left - 1)
        more: dict[str, Any] = {}
        if most > 0:
            more = _proposal(engine, prompt + answer, most, logits=asked.draft_logits)
        new, response = engine.continued(engine.name, prompt + answer, min(most + 1, left), more)
        answer += new
        if not new or ends in new or len(answer) >= asked.max_tokens or len(new) < min(most + 1, left):
            return _with_tokens(response, answer, engine.outputs)


def _proposal(engine: Engine, ids: list[int], most: int, *, logits: bool) -> dict[str, Any]:
    """Return the draft engine's tokens as inputs of the model's engine; none where it ended at once."""
    wanted = ("generation_logits",) if logits else ()
    flags = {"return_generation_logits": pb_utils.Tensor("return_generation_logits", np.array([[True]]))}
    tokens, response = engine.continued(engine.draft or "", ids, most, flags if logits else {}, wanted)
    if not tokens:
        return {}
    found = {"draft_input_ids": np.array([tokens], dtype=np.int32)}
    scores = pb_utils.get_output_tensor_by_name(response, "generation_logits") if logits else None
    if scores is not None:
        array = scores.as_numpy()
        found["draft_logits"] = array.reshape(1, -1, array.shape[-1])[:, : len(tokens)]
    return {name: pb_utils.Tensor(name, array) for name, array in found.items()}


def _with_tokens(response: Any, answer: list[int], outputs: list[str]) -> Any:
    kept = (pb_utils.get_output_tensor_by_name(response, name) for name in outputs)
    tensors = [
        pb_utils.Tensor("output_ids", np.array([[answer]], dtype=np.int32)),
        pb_utils.Tensor("sequence_length", np.array([[len(answer)]], dtype=np.int32)),
        *(tensor for tensor in kept if tensor is not None),
    ]
    return pb_utils.InferenceResponse(output_tensors=tensors)
