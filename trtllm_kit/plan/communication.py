"""Collectives of one prefill: how often the ranks reduce, how much, and what each GPU sends for it.

Each decoder layer ends its attention and its feed-forward part with one all-reduce of the hidden state of every
token when tensor ranks share the layer. Ranks with requests of their own (attention data parallelism) share the routed
experts alone: tokens go to the experts of all ranks and come back. ``docs/explanation/communication.md`` works an
example.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from trtllm_kit.plan.parallelism import Split, exchanged, stages
from trtllm_kit.plan.plan import CommunicationPlan
from trtllm_kit.spec.model import Attention, Experts, ModelSpec

ACTIVATION_BYTES = 2
"""Hidden states travel in 16 bit."""
REDUCES_A_LAYER = 2
EXCHANGES_A_LAYER = 2
"""There and back, of layers with experts."""


def communication_plan(model: ModelSpec, split: Split, tokens: int) -> CommunicationPlan:
    """Count the collectives of a prompt of ``tokens``; the output head's gather and the stages' hand-over are left out.

    The payload is that of all layers; a GPU sends only for the layers of its own pipeline stage.
    """
    if split.attention_dp:
        return _exchanges(model, split, tokens)
    mine = ceil(tokens / split.context)
    one_layer = REDUCES_A_LAYER * mine * model.hidden * ACTIVATION_BYTES if split.tensor > 1 else 0
    longest = max(stages(model, split.pipeline), key=len)
    others = (split.context - 1) / split.context
    kept = (sum(exchanged(mixer, split.tensor)) for mixer in _attentions(model, longest))
    return CommunicationPlan(
        all_reduces=all_reduces(model, split.tensor),
        payload_bytes=len(model.layers) * one_layer,
        sent_bytes_per_gpu=ring_bytes_sent(len(longest) * one_layer, split.tensor)
        + (round(others * mine * ACTIVATION_BYTES * sum(kept)) if split.context > 1 else 0),
    )


def _attentions(model: ModelSpec, stage: range) -> Iterator[Attention]:
    mixers = (model.layers[number].mixer for number in stage)
    return (mixer for mixer in mixers if isinstance(mixer, Attention))


def _exchanges(model: ModelSpec, split: Split, tokens: int) -> CommunicationPlan:
    """Count what goes to the experts of other ranks and comes back, where each rank has such a prompt of its own."""
    one_layer = EXCHANGES_A_LAYER * tokens * model.hidden * ACTIVATION_BYTES if split.tensor > 1 else 0
    routed = [isinstance(layer.feed_forward, Experts) for layer in model.layers]
    most = max(sum(routed[number] for number in stage) for stage in stages(model, split.pipeline))
    return CommunicationPlan(
        all_reduces=0,
        payload_bytes=sum(routed) * one_layer,
        sent_bytes_per_gpu=most * one_layer * (split.tensor - 1),
    )


def all_reduces(model: ModelSpec, tensor: int) -> int:
    """Return the all-reduces in the decoder blocks of one forward pass."""
    return REDUCES_A_LAYER * len(model.layers) if tensor > 1 else 0


def ring_bytes_sent(payload: int, ranks: int) -> int:
    """Return the bytes each rank sends in a ring all-reduce of ``payload`` bytes: 2 (n - 1) / n of it."""
    return round(payload * 2 * (ranks - 1) / ranks)
