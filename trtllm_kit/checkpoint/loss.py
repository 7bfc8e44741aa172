"""Where a conversion loses: two checkpoints of one model side by side, layer by layer.

Each layer of b runs twice: on the state that b itself has reached, which shows how errors add up, and on a's state,
which shows what this layer alone gets wrong. The second figure names a damaged layer; behind it the first one is
large in every layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trtllm_kit.checkpoint.load import OpenCheckpoint
from trtllm_kit.checkpoint.measures import F64, cosines, mean, relative_errors
from trtllm_kit.checkpoint.states import States
from trtllm_kit.checkpoint.stream import Batch, Side, StreamedLayer, Window, batches, most_tokens
from trtllm_kit.dtypes import F32
from trtllm_kit.progress import Progress


@dataclass(frozen=True)
class LayerLoss:
    """What one layer of b loses; every figure is a mean over positions, errors as shares (relative L2)."""

    layer: int
    error: float
    """Of the layer's output, given what a's layer was given."""
    attention_error: float
    """Of what attention adds to the state, given what a's was given."""
    feed_forward_error: float
    """Of what the feed-forward part adds, given what a's was given."""
    state_error: float
    """Of the state behind the layer, with all that was lost before it."""
    state_cosine: float
    """Of the same two states; 1 for equal."""


class Pair(NamedTuple):
    """Both checkpoints after their last layer: a (tokens, hidden) state for each piece, and what each layer lost."""

    a: States
    b: States
    layers: tuple[LayerLoss, ...]


def weakest(layers: Iterable[LayerLoss], count: int) -> tuple[LayerLoss, ...]:
    """Return the layers that lose most on their own, the worst first; none that loses nothing."""
    lossy = [one for one in layers if one.error != 0.0]
    return tuple(sorted(lossy, key=lambda one: (not np.isnan(one.error), -one.error, one.layer))[:count])


def run_pair(a: OpenCheckpoint, b: OpenCheckpoint, pieces: Sequence[Window], progress: Progress) -> Pair:
    """Run ``pieces`` through both; they must have equally many layers.

    Raises ``CalibrationError``, and ``StorageError`` when there is no room for the states.
    """
    progress.start("comparing layer by layer", len(a.model.layers), "layers")
    source, converted = Side(a, pieces), Side(b, pieces)
    every = batches(pieces, most_tokens(a.model))
    found: list[LayerLoss] = []
    for number in range(len(a.model.layers)):
        layers = _Layers(source.layer(number), converted.layer(number), converted.layer(number))
        parts = [_figures(layers, source.states, converted.states, batch) for batch in every]
        found.append(LayerLoss(number, *map(mean, map(np.concatenate, zip(*parts, strict=True)))))
        progress.advance(1)
    progress.finish()
    return Pair(source.states, converted.states, tuple(found))


class _Figures(NamedTuple):
    """Figures of some positions, (positions,) each, in the order of ``LayerLoss``."""

    error: F64
    attention_error: F64
    feed_forward_error: F64
    state_error: F64
    state_cosine: F32


class _Layers(NamedTuple):
    """One layer of a, and that of b on a's states and on its own."""

    source: StreamedLayer
    given: StreamedLayer
    reached: StreamedLayer


def _figures(layers: _Layers, a: States, b: States, batch: Batch) -> _Figures:
    """Take a batch through one layer of both, and say what b's layer lost on it."""
    start = a.together(batch)
    wanted = layers.source.added(start, batch)
    given = layers.given.added(start, batch, start + wanted.attention)
    attention = relative_errors(wanted.attention, given.attention)
    feed_forward = relative_errors(wanted.feed_forward, given.feed_forward)
    output, without = wanted.onto(start), given.onto(start)
    error = relative_errors(output, without)
    del start, wanted, given, without
    state = b.together(batch)
    reached = layers.reached.added(state, batch).onto(state)
    a.put(batch, output)
    b.put(batch, reached)
    return _Figures(error, attention, feed_forward, relative_errors(output, reached), cosines(output, reached))
