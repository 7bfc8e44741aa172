"""Choosing the next tokens of a batch on the device that computed the logits.

The rules are those of ``trtllm_kit.reference.sampling``, and so are the random numbers: the same logits and the same
seed choose the same tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ask import Ask


class Chooser:
    """How one request chooses its tokens, and what it chose."""

    def __init__(self, ask: Ask) -> None:
        """Take a request's settings, which ``ask`` has checked."""
        self.temperature = 0.0 if ask.greedy else 1.0 if ask.temperature is None else ask.temperature
        self.top_k, self.top_p = ask.top_k or 0, 1.0 if ask.top_p is None else ask.top_p
        self.frequency, self.presence = ask.frequency_penalty or 0.0, ask.presence_penalty or 0.0
        self.wants_logprob = ask.cumulative_logprob
        self.random = np.random.default_rng(ask.seed or 0)
        self.chosen: Counter[int] = Counter()

    @property
    def penalises(self) -> bool:
        """Whether tokens that were chosen lose by it."""
        return bool(self.chosen) and (self.frequency != 0.0 or self.presence != 0.0)


def choose(logits: Any, choosers: Sequence[Chooser]) -> list[tuple[int, float]]:
    """Return a token for each row of (rows, vocabulary) float32 logits, with its log probability where it is wanted."""
    changed = _penalised(logits, choosers)
    tokens = changed.argmax(-1)
    drawn = [row for row, one in enumerate(choosers) if one.temperature > 0.0]
    if drawn:
        tokens[drawn] = _draw(changed[drawn], [choosers[row] for row in drawn])
    told = [0.0] * len(choosers)
    if any(one.wants_logprob for one in choosers):
        told = logits.log_softmax(-1).gather(-1, tokens[:, None]).squeeze(-1).tolist()
    picked = tokens.tolist()
    for one, token in zip(choosers, picked, strict=True):
        one.chosen[token] += 1
    wanted = [told[row] if one.wants_logprob else 0.0 for row, one in enumerate(choosers)]
    return list(zip(picked, wanted, strict=True))


def _penalised(logits: Any, choosers: Sequence[Chooser]) -> Any:
    rows = [row for row, one in enumerate(choosers) if one.penalises]
    if not rows:
        return logits
    changed = logits.clone()
    for row in rows:
        one = choosers[row]
        tokens = torch.tensor(list(one.chosen), device=logits.device)
        counts = torch.tensor(list(one.chosen.values()), device=logits.device, dtype=logits.dtype)
        changed[row, tokens] -= counts * one.frequency + one.presence
    return changed


def _draw(logits: Any, choosers: Sequence[Chooser]) -> Any:
    """Return a random token of each row: of the ``top_k`` likeliest those fewest that reach ``top_p``."""

    def column(values: Sequence[float]) -> Any:
        return torch.tensor(values, device=logits.device, dtype=torch.float64)[:, None]

    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    place = torch.arange(ordered.shape[-1], device=logits.device)
    most = torch.tensor([one.top_k or ordered.shape[-1] for one in choosers], device=logits.device)[:, None]
    scaled = ordered.double() / column([one.temperature for one in choosers])
    reached = scaled.masked_fill(place >= most, float("-inf")).softmax(-1).cumsum(-1)
    limits = column([one.top_p if one.top_p < 1.0 else 2.0 for one in choosers])
    last = torch.minimum((reached < limits).sum(-1, keepdim=True), most - 1).clamp(max=ordered.shape[-1] - 1)
    wanted = column([one.random.random() for one in choosers]) * reached.gather(-1, last)
    return order.gather(-1, torch.minimum((reached <= wanted).sum(-1, keepdim=True), last)).squeeze(-1)
