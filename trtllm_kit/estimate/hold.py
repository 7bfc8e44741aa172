"""Prompts that are held back for others: two settings of the PyTorch backend that trade first tokens for throughput.

``batch_wait_timeout_iters`` with ``batch_wait_max_tokens_ratio`` lets prompts wait until a step is full enough.
``attention_dp_config`` with ``enable_balance`` lets ranks with requests of their own wait until each of them has a
prompt to start, so that no rank idles while another reads. Neither waits where nothing generates.
"""

from __future__ import annotations

from trtllm_kit.estimate.cells import Cells
from trtllm_kit.estimate.subject import EveryRank as EveryRank
from trtllm_kit.light import dataclass


@dataclass(frozen=True)
class FullStep:
    """Prompts wait until a step is full enough."""

    share: float
    """Of ``max_num_tokens``; generating requests count too (``batch_wait_max_tokens_ratio``)."""
    rounds: int
    """After so many they go all the same (``batch_wait_timeout_iters``)."""


class Hold:
    """Counts how long prompts have waited."""

    def __init__(self, rule: FullStep | EveryRank | None) -> None:
        """Begin to count; None holds nothing back."""
        self._rule = rule
        self._waited = self._batched = 0
        self._uneven = False
        """Whether some ranks have a prompt and others none, where all generate."""

    def rounds(self, cells: Cells) -> int:
        """Return for how many rounds the scheduled prompts wait, as far as can be said now; 0 when they go."""
        if isinstance(self._rule, FullStep) and cells.chunks and cells.generating:
            return self._not_full(cells, self._rule)
        if isinstance(self._rule, EveryRank) and len(cells.ranks) > 1:
            return self._not_every(cells, self._rule)
        return 0

    def passed(self, rounds: int, *, held: bool) -> None:
        """Count rounds; ranks count their wait where there is no prompt too, and begin again after the last of it."""
        if isinstance(self._rule, EveryRank):
            self._waited = (self._waited + rounds) % self._rule.rounds if self._uneven else 0
            self._batched += rounds if held and not self._uneven else 0
        elif held:
            self._waited += rounds

    def _not_full(self, cells: Cells, rule: FullStep) -> int:
        tokens = {id(cell): cells.width * cell.generating for cell in cells.all}
        for cell, _, size in cells.chunks:
            tokens[id(cell)] += size
        if max(tokens.values()) >= rule.share * cells.all[0].tokens or self._waited >= rule.rounds:
            self._waited = 0
            return 0
        return rule.rounds - self._waited

    def _not_every(self, cells: Cells, rule: EveryRank) -> int:
        ready = {id(cell) for cell, _, _ in cells.chunks}
        generate = all(cell.generating for cell in cells.all)
        every = len(ready) == len(cells.all) and all(cell.generating < cell.slots for cell in cells.all)
        self._uneven = generate and not every
        if every and generate and self._batched < rule.batching:
            return rule.batching - self._batched
        if every:
            self._batched = 0
        return rule.rounds - 1 - self._waited if self._uneven and cells.chunks else 0
