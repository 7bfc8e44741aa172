"""Collectives of one prefill: how often the ranks reduce, how much, and what each GPU sends for it.

Each decoder layer ends its attention and its feed-forward part with one all-reduce of the hidden state of every
token when tensor ranks share the layer. ``docs/explanation/communication.md`` works an example.
"""

from __future__ import annotations

from trtllm_kit.plan.plan import CommunicationPlan
from trtllm_kit.spec.model import ModelSpec

ACTIVATION_BYTES = 2
"""Hidden states travel in 16 bit."""
REDUCES_A_LAYER = 2


def communication_plan(model: ModelSpec, tensor: int, tokens: int) -> CommunicationPlan:
    """Count the collectives of a prompt of ``tokens`` over ``tensor`` ranks; the output head's gather is left out."""
    count = all_reduces(model, tensor)
    payload = count * tokens * model.hidden * ACTIVATION_BYTES
    return CommunicationPlan(
        all_reduces=count, payload_bytes=payload, sent_bytes_per_gpu=ring_bytes_sent(payload, tensor)
    )


def all_reduces(model: ModelSpec, tensor: int) -> int:
    """Return the all-reduces in the decoder blocks of one forward pass."""
    return REDUCES_A_LAYER * len(model.layers) if tensor > 1 else 0


def ring_bytes_sent(payload: int, ranks: int) -> int:
    """Return the bytes each rank sends in a ring all-reduce of ``payload`` bytes: 2 (n - 1) / n of it."""
    return round(payload * 2 * (ranks - 1) / ranks)
