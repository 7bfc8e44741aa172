"""Collectives of one prefill: how often the ranks reduce, how much, and what each GPU sends for it.

Each decoder layer ends its attention and its feed-forward part with one all-reduce of the hidden state of every
token when tensor ranks share the layer. ``docs/explanation/communication.md`` works an example.
"""

from __future__ import annotations

from trtllm_kit.plan.parallelism import Split, stages
from trtllm_kit.plan.plan import CommunicationPlan
from trtllm_kit.spec.model import ModelSpec

ACTIVATION_BYTES = 2
"""Hidden states travel in 16 bit."""
REDUCES_A_LAYER = 2


def communication_plan(model: ModelSpec, split: Split, tokens: int) -> CommunicationPlan:
    """Count the collectives of a prompt of ``tokens``; the output head's gather and the stages' hand-over are left out.

    The payload is that of all layers; a GPU sends only for the layers of its own pipeline stage.
    """
    one_layer = REDUCES_A_LAYER * tokens * model.hidden * ACTIVATION_BYTES if split.tensor > 1 else 0
    longest = max(len(stage) for stage in stages(model, split.pipeline))
    return CommunicationPlan(
        all_reduces=all_reduces(model, split.tensor),
        payload_bytes=len(model.layers) * one_layer,
        sent_bytes_per_gpu=ring_bytes_sent(longest * one_layer, split.tensor),
    )


def all_reduces(model: ModelSpec, tensor: int) -> int:
    """Return the all-reduces in the decoder blocks of one forward pass."""
    return REDUCES_A_LAYER * len(model.layers) if tensor > 1 else 0


def ring_bytes_sent(payload: int, ranks: int) -> int:
    """Return the bytes each rank sends in a ring all-reduce of ``payload`` bytes: 2 (n - 1) / n of it."""
    return round(payload * 2 * (ranks - 1) / ranks)
