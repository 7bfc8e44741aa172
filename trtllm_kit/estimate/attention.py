"""What attention and recurrent states cost: pairs of a query and a key, bytes of the cache, by kind of layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trtllm_kit.plan.formats import kv_element_bytes
from trtllm_kit.plan.memory import kv_bytes_per_token
from trtllm_kit.plan.recurrent import state_bytes_per_sequence
from trtllm_kit.plan.sparse_cache import index_bytes
from trtllm_kit.spec.mixers import Attention, DeltaNet, KimiDelta, Mamba
from trtllm_kit.spec.model import Layer
from trtllm_kit.spec.profile_formats import KvFormat


@dataclass(frozen=True, slots=True)
class Attending:
    """Attention of one layer on one rank."""

    prompt_flops: int
    """Operations of a pair of a prompt's query and a key, all heads of the rank together."""
    generation_flops: int
    """The same while generating: latent attention then works on the latent vectors themselves."""
    bytes_per_key: float
    """Bytes of the cache that a generating sequence reads for a key it looks at."""
    window: int | None
    """Keys that a query looks at, at most; None for all before it."""
    scored_bytes: float = 0.0
    """Bytes read for every key before the query, to choose from or as vectors that stand for several."""
    scored_flops: int = 0
    """Operations for each of them."""


def pairs_within(new: int, past: int, window: int | None) -> float:
    """Return the sum over i = 1..new of min(past + i, window); None for no window."""
    if window is None or past + new <= window:
        return new * past + new * (new + 1) / 2
    growing = max(0, min(new, window - past))
    return growing * past + growing * (growing + 1) / 2 + (new - growing) * window


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent mixer of one layer on one rank."""

    bytes_per_sequence: int
    """Bytes of the state, which a step reads and writes."""
    flops_per_token: int
    """Operations on the state for one token."""


@lru_cache(maxsize=4096)
def _attending(attention: Attention, layer_bytes: float, tensor: int) -> Attending:
    heads = max(1, attention.heads // tensor)
    prompt = 2 * heads * (attention.head_dim + attention.value_width)
    generation, window, scored_bytes, scored_flops = prompt, attention.window, 0.0, 0
    if attention.latent is not None:
        latent = attention.latent
        generation = 2 * heads * (2 * latent.kv_rank + latent.rope_dim)
    if attention.indexer is not None:
        indexer = attention.indexer
        window = indexer.chosen * indexer.block
        scored_bytes, scored_flops = float(index_bytes(attention)), 2 * indexer.heads * indexer.head_dim
        layer_bytes -= scored_bytes
    compression = attention.compression
    if compression is not None:
        generation = prompt = 4 * heads * attention.head_dim
        window = attention.window
        ratio = compression.ratio
        scored_bytes = scored_bytes / ratio + layer_bytes / ratio if ratio else 0.0
        scored_flops = prompt // ratio if ratio else 0
    return Attending(prompt, generation, layer_bytes, window, scored_bytes, scored_flops)


def attending_of(layer: Layer, tensor: int, kv_format: KvFormat) -> Attending | None:
    """Return the attention of a layer on one of ``tensor`` ranks; None for a layer without."""
    if not isinstance(layer.mixer, Attention):
        return None
    each = kv_bytes_per_token((layer,), tensor, kv_element_bytes(kv_format))
    return _attending(layer.mixer, float(each), tensor)


def state_of(layer: Layer, tensor: int) -> State | None:
    """Return the recurrent state of a layer on one of ``tensor`` ranks; None for a layer without."""
    mixer = layer.mixer
    if mixer is None or isinstance(mixer, Attention):
        return None
    return State(state_bytes_per_sequence((layer,), tensor), _state_flops(mixer) // tensor)


def _state_flops(mixer: DeltaNet | Mamba | KimiDelta) -> int:
    """Count decay, what is added, and what is read of every element of the state, two operations each."""
    return 6 * mixer.state_elements
