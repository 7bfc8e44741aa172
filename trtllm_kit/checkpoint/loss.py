"""Where a conversion loses: two checkpoints of one model side by side, one layer in memory at a time.

Each layer of b runs twice: on the state that b itself has reached, which shows how errors add up, and on a's state,
which shows what this layer alone gets wrong. The second figure names a damaged layer; behind it the first one is
large in every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trtllm_kit.checkpoint.load import OpenCheckpoint
from trtllm_kit.checkpoint.measures import F64, cosines, mean, relative_errors
from trtllm_kit.checkpoint.stream import Window, require_known
from trtllm_kit.dtypes import F32
from trtllm_kit.progress import Progress
from trtllm_kit.reference.layer import DecoderLayer, build_layer
from trtllm_kit.reference.model import Embedding
from trtllm_kit.reference.rope import RotaryTable, rotary_tables


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

    a: list[F32]
    b: list[F32]
    layers: tuple[LayerLoss, ...]


def weakest(layers: Iterable[LayerLoss], count: int) -> tuple[LayerLoss, ...]:
    """Return the layers that lose most on their own, the worst first; none that loses nothing."""
    lossy = [one for one in layers if one.error != 0.0]
    return tuple(sorted(lossy, key=lambda one: (not np.isnan(one.error), -one.error, one.layer))[:count])


def run_pair(a: OpenCheckpoint, b: OpenCheckpoint, pieces: Sequence[Window], progress: Progress) -> Pair:
    """Run ``pieces`` through both; they must have equally many layers. Raises ``CalibrationError``."""
    source, converted = _Side(a, pieces), _Side(b, pieces)
    found: list[LayerLoss] = []
    progress.start("comparing layer by layer", len(a.model.layers), "layers")
    for number in range(len(a.model.layers)):
        layer, starts = source.layer(number), source.states
        wanted = [layer.added(start) for start in starts]
        source.states = [part.onto(start) for start, part in zip(starts, wanted, strict=True)]
        layer = converted.layer(number)  # the source's own is let go
        given = [layer.added(start, start + part.attention) for start, part in zip(starts, wanted, strict=True)]
        converted.states = [layer.added(state).onto(state) for state in converted.states]
        outputs = [part.onto(start) for start, part in zip(starts, given, strict=True)]
        found.append(
            LayerLoss(
                layer=number,
                error=_error(source.states, outputs),
                attention_error=_error([one.attention for one in wanted], [one.attention for one in given]),
                feed_forward_error=_error([one.feed_forward for one in wanted], [one.feed_forward for one in given]),
                state_error=_error(source.states, converted.states),
                state_cosine=mean(_each(cosines, source.states, converted.states)),
            )
        )
        progress.advance(1)
    progress.finish()
    return Pair(source.states, converted.states, tuple(found))


def _error(a: Sequence[F32], b: Sequence[F32]) -> float:
    return mean(_each(relative_errors, a, b))


def _each(figure: Callable[[F32, F32], F32 | F64], a: Sequence[F32], b: Sequence[F32]) -> F32 | F64:
    """Return a figure of every position of all pieces."""
    return np.concatenate([figure(one, other) for one, other in zip(a, b, strict=True)])


class _Added(NamedTuple):
    """What the two parts of a layer add to a state, (tokens, hidden) each."""

    attention: F32
    feed_forward: F32

    def onto(self, start: F32) -> F32:
        """Return the state behind the layer."""
        return start + self.attention + self.feed_forward


class _Layer(NamedTuple):
    """One layer of a checkpoint and how its heads are turned."""

    decoder: DecoderLayer
    rotary: RotaryTable

    def added(self, start: F32, middle: F32 | None = None) -> _Added:
        """Return what the parts add to a state; the second sees ``middle``, or what the first made of ``start``."""
        attention = self.decoder.attended(start, self.rotary.at(0, len(start)), self.decoder.new_cache())
        return _Added(attention, self.decoder.fed(start + attention if middle is None else middle))


class _Side:
    """One checkpoint on its way through the layers."""

    def __init__(self, opened: OpenCheckpoint, pieces: Sequence[Window]) -> None:
        require_known(pieces, opened.model)
        embed = Embedding(opened.model, opened.weights)
        self.states = [embed(piece) for piece in pieces]
        self._opened = opened
        self._rotary = rotary_tables(opened.model, max(map(len, pieces), default=0))

    def layer(self, number: int) -> _Layer:
        opened = self._opened
        decoder = build_layer(opened.model, number, opened.weights, opened.kv_format)
        return _Layer(decoder, self._rotary[number])
