"""Keys and values of all requests in one pool of blocks, behind the cache interface of transformers.

Each layer has two tensors of (tokens, KV heads, head width). A request holds whole blocks; which ones is its own
affair. Block 0 belongs to nobody: what fills a batch up reads and writes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "trtkit_blocks"
"""Name under which transformers knows ``attend``."""


class Blocks:
    """Which blocks are free. Not safe for threads: one of them runs the model."""

    def __init__(self, count: int, tokens: int) -> None:
        """Begin with all of ``count`` blocks of ``tokens`` tokens free."""
        self.count, self.tokens = count, tokens
        self.size = (count + 1) * tokens
        """Tokens of a layer's tensors, block 0 included."""
        self._free = list(range(count, 0, -1))

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def take(self, tokens: int) -> list[int]:
        """Return the numbers of blocks for so many tokens; raises ``IndexError`` when there are not enough."""
        wanted = -(-tokens // self.tokens)
        if wanted > len(self._free):
            raise IndexError(f"{wanted} KV blocks wanted, {len(self._free)} are free")
        taken = self._free[-wanted:]
        del self._free[-wanted:]
        return taken

    def give(self, blocks: Sequence[int]) -> None:
        """Take blocks back."""
        self._free.extend(blocks)


@dataclass
class Places:
    """Where the tokens of a forward pass are kept; all layers look here."""

    write: Any = None
    """(batch x queries,) places of the new tokens."""
    read: Any = None
    """(batch, tokens) places of all tokens that are looked at; None where nothing lies before the new ones."""


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's part of the pool, made when the first keys tell its shape."""

    is_sliding = False

    def __init__(self, size: int, places: Places) -> None:
        super().__init__()
        self._size, self._places = size, places

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Make the tensors: zeros, for a weight of 0 times what is no number would be no number."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (
            torch.zeros(self._size, like.shape[1], like.shape[3], dtype=like.dtype, device=like.device)
            for like in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Any, value_states: Any, *_others: Any, **_named: Any) -> tuple[Any, Any]:
        """Keep (batch, heads, queries, width); return all keys and values that are looked at, in the same order."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        places = self._places
        self.keys[places.write] = key_states.transpose(1, 2).flatten(0, 1)
        self.values[places.write] = value_states.transpose(1, 2).flatten(0, 1)
        if places.read is None:
            return key_states, value_states
        return self.keys[places.read].transpose(1, 2), self.values[places.read].transpose(1, 2)

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        """Return the tokens that a mask made by transformers covers: those of a prompt; other masks are given."""
        return (query_length if isinstance(query_length, int) else len(query_length)), 0

    def get_seq_length(self, *_: Any) -> int:
        """Return 0: positions are given, and a prompt is read whole."""
        return 0

    def get_max_length(self) -> int:
        """Return -1: the pool has no length of its own."""
        return -1

    def get_max_cache_shape(self) -> int:
        """Return -1, the same under its older name."""
        return -1


def pool_of(layers: int, blocks: Blocks, places: Places) -> Any:
    """Return the cache that a model of so many layers is given."""
    return Cache(layers=[_Layer(blocks.size, places) for _ in range(layers)])


def attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **named: Any
) -> tuple[Any, None]:
    """Attend as PyTorch does; (batch, heads, queries, width) become (batch, queries, heads, width).

    With one query each, those of the heads that share keys stand as the queries of one head: keys are not repeated.
    """
    batch, heads, queries, width = query.shape
    if queries > 1 or attention_mask is None:
        out: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **named
        )
        return out
    folded = query.reshape(batch, key.shape[1], heads // key.shape[1], width)
    answer = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=scaling
    )
    return answer.reshape(batch, 1, heads, value.shape[-1]), None


def register() -> None:
    """Make ``attend`` known to transformers."""
    AttentionInterface.register(ATTENTION, attend)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
