"""What the runtime takes besides weights and KV cache: activations, buffers, and what the KV pool keeps back."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

ActivationKind = Literal["llama", "dense", "experts"]
AttentionKind = Literal["full", "sliding", "chunked"]
_TABLE = "memory"


class _Activations(Fact):
    kind: ActivationKind
    coefficients: dict[int, float]


class _Buffer(Fact):
    name: Literal["communication", "runtime"]
    bytes_by_ranks: dict[int, int]


class _Routing(Fact):
    block_tokens: int
    entry_bytes: int


class _KvPool(Fact):
    reserved_share: float


IndexerKeys = Literal["deepseek", "compressed", "minimax"]


class _IndexerKeys(Fact):
    layout: IndexerKeys
    bits: int
    scale_columns: int
    scale_bytes: int


class _CompressorState(Fact):
    element_bytes: int


class _Retention(Fact):
    attention: AttentionKind
    keeps: Literal["all", "window"]


class Uncounted(Fact):
    """An argument of the LLM API whose memory no sum of a plan has."""

    key: str
    """Dotted; of a section all that stands in it."""
    takes: str
    """What the memory is for."""
    unless: tuple[str, ...] = ()
    """Values, as YAML spells them, that take none."""


def uncounted(key: str, value: object) -> Uncounted | None:
    """Return what a dotted key of the LLM API takes with a value and no sum has; None where nothing is known of it."""
    spelt = "null" if value is None else str(value).lower()
    found = (row for row in rows(_TABLE, "uncounted", Uncounted) if key == row.key or key.startswith(f"{row.key}."))
    return next((row for row in found if spelt not in row.unless), None)


@cache
def activation_coefficient(kind: ActivationKind, ranks: int) -> float:
    """Return c in activation bytes = 2 x max_num_tokens x hidden x c, for a number of tensor ranks."""
    table = next(row for row in rows(_TABLE, "activations", _Activations) if row.kind == kind)
    return table.coefficients[_at_most(ranks, table.coefficients)]


@cache
def buffer_bytes(name: Literal["communication", "runtime"], ranks: int) -> int:
    """Return the bytes of a fixed buffer on each of a number of ranks."""
    table = next(row for row in rows(_TABLE, "buffers", _Buffer) if row.name == name)
    return table.bytes_by_ranks[_at_most(ranks, table.bytes_by_ranks)]


@cache
def routing_block() -> tuple[int, int]:
    """Return the tokens that the expert kernels sort in one block, and the bytes of an entry of their workspace."""
    row = rows(_TABLE, "routing", _Routing)[0]
    return row.block_tokens, row.entry_bytes


@cache
def kv_reserved_share() -> float:
    """Return the share of the KV pool that its allocator keeps for itself."""
    return rows(_TABLE, "kv_pool", _KvPool)[0].reserved_share


@cache
def holds_window_only(attention: AttentionKind) -> bool:
    """Whether the KV cache of such a layer holds no more than the attention window of a sequence."""
    return any(row.keeps == "window" for row in rows(_TABLE, "retention", _Retention) if row.attention == attention)


@cache
def indexer_key_bytes(layout: IndexerKeys, width: int) -> int:
    """Return the bytes that the cache of an indexer's keys takes for one key."""
    row = next(row for row in rows(_TABLE, "indexer_keys", _IndexerKeys) if row.layout == layout)
    scales = width // row.scale_columns * row.scale_bytes if row.scale_columns else 0
    return width * row.bits // 8 + scales


@cache
def compressor_element_bytes() -> int:
    """Return the bytes of an element that waits to be compressed."""
    return rows(_TABLE, "compressor_state", _CompressorState)[0].element_bytes


def _at_most(ranks: int, table: dict[int, float] | dict[int, int]) -> int:
    return max(entry for entry in table if entry <= ranks)
