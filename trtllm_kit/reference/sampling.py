"""Choosing the next token from logits."""

from __future__ import annotations

from collections import Counter

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.errors import UsageError
from trtllm_kit.reference.numeric import softmax


class Sampler:
    """Picks the tokens of one sequence, and remembers them for the penalties."""

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
    ) -> None:
        """Take the settings of one request; raises ``UsageError`` for a value outside its range.

        ``temperature`` 0 is greedy. ``top_k`` 0 and ``top_p`` 1 keep every token. Both filters look at the
        distribution after temperature; the smallest set of tokens whose probability reaches ``top_p`` stays.
        A token picked ``c`` times loses ``c * frequency_penalty + presence_penalty`` from its logit.
        """
        _require(temperature >= 0.0, f"temperature {temperature}", "it must be 0 (greedy) or above")
        _require(top_k >= 0, f"top_k {top_k}", "it must be 0 (no limit) or above")
        _require(0.0 < top_p <= 1.0, f"top_p {top_p}", "it must be above 0 and at most 1")
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p
        self._random = np.random.default_rng(seed)
        self._frequency_penalty = frequency_penalty
        self._presence_penalty = presence_penalty
        self._picked: Counter[int] = Counter()

    def pick(self, logits: F32) -> int:
        """Choose a token from (vocab,) logits."""
        penalised = self._penalise(logits)
        token = int(np.argmax(penalised)) if self._temperature == 0.0 else self._draw(penalised)
        self._picked[token] += 1
        return token

    def _penalise(self, logits: F32) -> F32:
        if not self._picked or (self._frequency_penalty == 0.0 and self._presence_penalty == 0.0):
            return logits
        penalised = logits.copy()
        for token, count in self._picked.items():
            penalised[token] -= count * self._frequency_penalty + self._presence_penalty
        return penalised

    def _draw(self, logits: F32) -> int:
        order = np.argsort(-logits, kind="stable")
        if self._top_k:
            order = order[: self._top_k]
        odds = softmax(logits[order].astype(np.float64) / self._temperature)
        reached = np.cumsum(odds)
        kept = int(np.searchsorted(reached, self._top_p)) + 1 if self._top_p < 1.0 else len(odds)
        reached = reached[:kept]
        place = int(np.searchsorted(reached, self._random.random() * reached[-1], side="right"))
        return int(order[min(place, len(reached) - 1)])


def _require(fine: bool, what: str, why: str) -> None:
    if not fine:
        raise UsageError(f"{what} is not a sampling setting", why=why, hint="change that field of the request")
