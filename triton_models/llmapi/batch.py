"""One model of transformers that takes steps for many requests: prompts one by one, then one token for all of them.

A step is a forward pass over each new prompt, and one over the last tokens of all the others together. On a GPU that
one is a recorded graph where the model can be recorded; a prompt's lasts at least as long as Python takes to start it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from choice import Chooser, choose
from graphs import Graphs
from kv_pool import Blocks, Places, pool_of


@dataclass(eq=False)
class Row:
    """One request in the batch."""

    prompt: tuple[int, ...]
    most: int
    """Tokens of its answer at most."""
    chooser: Chooser
    token: int = -1
    """The token chosen last; -1 before the first."""
    logprob: float = 0.0
    gone: bool = False
    kept: int = 0
    """Tokens whose keys and values are in the pool."""
    blocks: list[int] = field(default_factory=list)


class Batch:
    """The model, its KV pool and the requests that hold blocks of it."""

    def __init__(self, model: Any, layers: int, blocks: Blocks) -> None:
        """Take a model on its device whose attention is ``kv_pool.ATTENTION``."""
        self._model, self._blocks = model, blocks
        self._device = model.device
        self._places = Places()
        self._cache = pool_of(layers, blocks, self._places)
        self._graphs: Graphs | None = None
        self._gone: list[Row] = []
        self._lock = threading.Lock()

    def record(self, rows: int, longest: int) -> int:
        """Record the steps of up to so many rows of up to so many tokens, on a GPU; return how many graphs there are.

        None are where the model waits for the device or looks at values within a step, as many mixtures of experts
        do: then every step is run as it is. Raises torch's ``OutOfMemoryError``.
        """
        graphs = Graphs(self._after, self._device)
        try:
            with torch.inference_mode():
                made = graphs.record(rows, -(-longest // self._blocks.tokens), self._blocks.count)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError:
            torch.cuda.synchronize()
            return 0
        self._graphs = graphs
        return made

    def leave(self, row: Row) -> None:
        """Let a request's blocks be freed before the next step; from any thread."""
        with self._lock:
            row.gone = True
            self._gone.append(row)

    def step(self, rows: Sequence[Row]) -> None:
        """Choose the next token of each row that is still there."""
        self._free()
        rows = [row for row in rows if not row.gone]
        if not rows:
            return
        with torch.inference_mode():
            groups = _alike([row for row in rows if row.kept], self._blocks)
            fresh = [row for row in rows if not row.kept]
            logits = [*map(self._next, groups), *map(self._read, fresh)]
            ordered = [*(row for group in groups for row in group), *fresh]
            chosen = choose(torch.cat(logits).float(), [row.chooser for row in ordered])
        for row, (token, logprob) in zip(ordered, chosen, strict=True):
            row.token, row.logprob = token, logprob

    def _free(self) -> None:
        with self._lock:
            gone, self._gone = self._gone, []
        for row in gone:
            self._blocks.give(row.blocks)
            row.blocks = []

    def _read(self, row: Row) -> Any:
        """Read a prompt; return the logits after it, (1, vocabulary)."""
        count = len(row.prompt)
        row.blocks = self._blocks.take(count + row.most)
        blocks = torch.tensor([row.blocks[: -(-count // self._blocks.tokens)]], device=self._device)
        self._places.write, self._places.read = self._table(blocks).flatten()[:count], None
        row.kept = count
        positions = torch.arange(count, device=self._device)[None]
        return self._forward(torch.tensor([row.prompt], device=self._device), positions, None)

    def _next(self, rows: Sequence[Row]) -> Any:
        """Run the last token of each row; return the logits after it, (rows, vocabulary)."""
        held = [row.blocks[: row.kept // self._blocks.tokens + 1] for row in rows]
        widest = max(map(len, held))
        blocks = torch.tensor([one + [0] * (widest - len(one)) for one in held], device=self._device)
        kept = torch.tensor([[row.kept] for row in rows], device=self._device)
        tokens = torch.tensor([[row.token] for row in rows], device=self._device)
        for row in rows:
            row.kept += 1
        logits = self._graphs.run(blocks, kept, tokens) if self._graphs is not None else None
        return self._after(blocks, kept, tokens) if logits is None else logits.clone()

    def _after(self, blocks: Any, kept: Any, tokens: Any) -> Any:
        """Return the logits after the last tokens (rows, 1), which follow ``kept`` (rows, 1) in the rows' blocks."""
        table = self._table(blocks)
        self._places.read, self._places.write = table, table.gather(1, kept).flatten()
        seen = torch.arange(table.shape[1], device=self._device)[None] <= kept
        return self._forward(tokens, kept, seen[:, None, None])

    def _table(self, blocks: Any) -> Any:
        """Return the places of the tokens in blocks, (rows, blocks) to (rows, tokens)."""
        size = self._blocks.tokens
        return (blocks[:, :, None] * size + torch.arange(size, device=self._device)).flatten(1)

    def _forward(self, tokens: Any, positions: Any, mask: Any) -> Any:
        told = self._model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return told.logits[:, -1]


def _alike(rows: Sequence[Row], blocks: Blocks) -> list[list[Row]]:
    """Part rows into groups, longest first, that filled up to their longest look at no more blocks than there are.

    Attention gathers what a group looks at, so one long request among many would else take more memory than the pool.
    """
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: -row.kept):
        widest = groups[-1][0].kept // blocks.tokens + 1 if groups else 0
        if not groups or (len(groups[-1]) + 1) * widest > blocks.count:
            groups.append([])
        groups[-1].append(row)
    return groups
