"""Runs texts through a checkpoint one layer at a time.

Memory holds a few blocks of a matrix and what is made of some of the tokens, however large the model is: a layer's
weights are read once for as many tokens as fit, which go through each of its matrices together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.checkpoint.load import OpenCheckpoint
from trtllm_kit.checkpoint.states import States, Stretch
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import CalibrationError
from trtllm_kit.progress import Progress
from trtllm_kit.reference.attention import Run
from trtllm_kit.reference.kv_cache import LayerCache
from trtllm_kit.reference.layer import DecoderLayer, build_layer
from trtllm_kit.reference.model import Embedding
from trtllm_kit.reference.numeric import Observe
from trtllm_kit.reference.rope import RotaryTable, rotary_tables
from trtllm_kit.spec.model import Experts, ModelSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Window = NDArray[np.int64]
"""Token ids of one piece of text, which is run on its own."""


def windows(tokenizer: Tokenizer, text: str, count: int, tokens: int) -> list[Window]:
    """Cut a text into at most ``count`` pieces of ``tokens`` tokens, each begun as the tokenizer begins a prompt.

    A text that is too short gives fewer pieces, and at least one when it has a token at all.
    """
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    start = full[: len(full) - len(plain)] if full[len(full) - len(plain) :] == plain else []
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    step = max(tokens - len(start), 1)
    pieces = [ids[at : at + step] for at in range(0, min(len(ids), count * step), step)]
    if len(pieces) > 1 and len(pieces[-1]) < step:
        pieces.pop()
    return [np.array(start + piece, dtype=np.int64) for piece in pieces]


def require_known(pieces: Sequence[Window], model: ModelSpec) -> None:
    """Raise ``CalibrationError`` when a text has a token that the model's vocabulary does not have."""
    largest = max((int(piece.max()) for piece in pieces if piece.size), default=0)
    if largest >= model.vocab:
        raise CalibrationError(
            f"the tokenizer gives token {largest}, which the model does not have",
            why=f"vocab_size in config.json is {model.vocab}, so its tokens run from 0 to {model.vocab - 1}",
            hint="take tokenizer.json from the model's own repository",
        )


def run_layers(
    opened: OpenCheckpoint, pieces: Sequence[Window], progress: Progress, label: str, observe: Observe | None = None
) -> States:
    """Return the (tokens, hidden) state of each piece after the last layer.

    Raises ``CalibrationError``, and ``StorageError`` when there is no room for the states.
    """
    require_known(pieces, opened.model)
    progress.start(label, len(opened.model.layers), "layers")
    side = Side(opened, pieces)
    for number in range(len(opened.model.layers)):
        layer = side.layer(number)
        for batch in batches(pieces, most_tokens(opened.model)):
            start = side.states.together(batch)
            side.states.put(batch, layer.added(start, batch, observe=observe).onto(start))
        progress.advance(1)
    progress.finish()
    return side.states


Batch = Sequence[Stretch]
"""Tokens that go through a matrix together, of one piece or of several."""


def batches(pieces: Sequence[Window], most: int) -> list[Batch]:
    """Return all tokens in order, ``most`` of them together and fewer in the last batch; pieces are cut for that."""
    found: list[list[Stretch]] = []
    room = 0
    for number, piece in enumerate(pieces):
        begin = 0
        while begin < len(piece):
            if not room:
                found.append([])
                room = most
            stretch = Stretch(number, begin, min(begin + room, len(piece)))
            found[-1].append(stretch)
            begin, room = stretch.end, room - len(stretch)
    return list(found)


class Added(NamedTuple):
    """What the two parts of a layer add to a state, (tokens, hidden) each."""

    attention: F32
    feed_forward: F32

    def onto(self, start: F32) -> F32:
        """Return the state behind the layer."""
        return start + self.attention + self.feed_forward


class StreamedLayer:
    """One layer of a checkpoint, whose matrices are read for each product.

    Of a piece that is cut, it keeps the keys and values until the last batch of it.
    """

    def __init__(self, decoder: DecoderLayer, rotary: RotaryTable, lengths: Sequence[int]) -> None:
        """Take a layer, how its heads are turned, and the tokens of each piece."""
        self._decoder, self._rotary, self._lengths = decoder, rotary, lengths
        self._caches: dict[int, LayerCache] = {}

    def added(self, start: F32, batch: Batch, middle: F32 | None = None, observe: Observe | None = None) -> Added:
        """Return what the parts add to the states of a batch; the batches of a text come in order, each once.

        The second part sees ``middle``, or what the first made of ``start``.
        """
        attention = self._decoder.attended(start, [self._run(stretch) for stretch in batch], observe)
        return Added(attention, self._decoder.fed(start + attention if middle is None else middle, observe))

    def _run(self, stretch: Stretch) -> Run:
        cache = self._caches.pop(stretch.piece, None) or self._decoder.new_cache()
        if stretch.end < self._lengths[stretch.piece]:
            self._caches[stretch.piece] = cache
        return Run(self._rotary.at(stretch.begin, len(stretch)), cache, len(stretch))


class Side:
    """One checkpoint on its way through the layers."""

    def __init__(self, opened: OpenCheckpoint, pieces: Sequence[Window]) -> None:
        """Embed the pieces; raises ``CalibrationError`` for a token that the model does not have."""
        require_known(pieces, opened.model)
        embed = Embedding(opened.model, opened.weights, streamed=True)
        self._lengths = [len(piece) for piece in pieces]
        self.states = States(self._lengths, opened.model.hidden)
        for batch in batches(pieces, most_tokens(opened.model)):
            tokens = np.concatenate([pieces[one.piece][one.begin : one.end] for one in batch])
            self.states.put(batch, embed(tokens))
        self._opened = opened
        self._rotary = rotary_tables(opened.model, max(self._lengths, default=0))

    def layer(self, number: int) -> StreamedLayer:
        """Return layer ``number`` (0-based)."""
        opened = self._opened
        decoder = build_layer(opened.model, number, opened.weights, opened.kv_format, streamed=True)
        return StreamedLayer(decoder, self._rotary[number], self._lengths)


_ELEMENTS = 3 << 22
"""Of the widest thing that is made of a token, over all tokens that are run together: 48 MiB in float32."""


def most_tokens(model: ModelSpec) -> int:
    """Return how many tokens are run through a layer together."""
    return max(_ELEMENTS // most_width(model), 1)


def most_width(model: ModelSpec) -> int:
    """Return the most features that any part of a layer makes of a token."""
    widths = [model.hidden]
    for layer in model.layers:
        attention, block = layer.attention, layer.feed_forward
        widths.append(attention.heads * attention.head_dim)
        if attention.latent is not None:
            widths.append(attention.heads * (attention.latent.nope_dim + attention.latent.value_dim))
        if block is not None:
            widths.append(max(block.intermediate, block.shared_intermediate if isinstance(block, Experts) else 0))
    return max(widths)
