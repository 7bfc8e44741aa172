"""The whole model: token ids in, logits out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.dtypes import F32
from trtllm_kit.errors import UsageError
from trtllm_kit.reference.kv_cache import KvCache
from trtllm_kit.reference.layer import build_layer, read_norm
from trtllm_kit.reference.layer_reader import Weights, matrix
from trtllm_kit.reference.numeric import Observe, rms_norm, softcap
from trtllm_kit.reference.rope import rotary_tables
from trtllm_kit.reference.streamed import RowBlocks
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import KvFormat

Tokens = Sequence[int] | NDArray[np.integer[Any]]

_CHUNK = 512
"""Tokens of one pass through the layers; bounds the memory that attention scores take."""


class Embedding:
    """Token ids to hidden states."""

    def __init__(self, model: ModelSpec, weights: Weights, *, streamed: bool = False) -> None:
        """Read the (vocab, hidden) table; when ``streamed``, each call reads the rows it wants."""
        self.table = matrix(weights, f"{model.prefix}embed_tokens.weight", streamed=streamed)
        self._scale = np.float32(model.embedding_scale)

    def __call__(self, tokens: Tokens) -> F32:
        """Return the (tokens, hidden) embeddings; raises ``UsageError`` for an id outside the vocabulary."""
        ids = np.asarray(tokens, dtype=np.int64)
        outside = ids[(ids < 0) | (ids >= len(self.table))]
        if outside.size:
            raise UsageError(
                f"token id {outside[0]} is not in the model's vocabulary",
                why=f"ids run from 0 to {len(self.table) - 1}",
                hint="tokenise the text with the tokenizer in the model's own folder",
            )
        rows = self.table.take(ids) if isinstance(self.table, RowBlocks) else self.table[ids]
        return rows * self._scale


class Head:
    """Hidden states to logits: the final norm and the output matrix, which a tied model shares with its embedding."""

    def __init__(
        self, model: ModelSpec, weights: Weights, embedding: Embedding | None = None, *, streamed: bool = False
    ) -> None:
        """Read the norm and the matrix; a tied model's matrix is taken from ``embedding`` when it is given.

        When ``streamed``, each call reads the matrix anew, some rows at a time.
        """
        self.vocab = model.vocab
        self._epsilon = model.norm_epsilon
        self._softcap = model.logit_softcap
        self._norm = read_norm(model, weights, f"{model.prefix}norm.weight")
        if not model.tied_embeddings:
            self._matrix = matrix(weights, model.head_name, streamed=streamed)
        else:
            self._matrix = (embedding or Embedding(model, weights, streamed=streamed)).table

    def __call__(self, hidden: F32) -> F32:
        """Map (tokens, hidden) after the last layer to (tokens, vocab)."""
        normed: F32 = rms_norm(hidden, self._norm, self._epsilon)
        table = self._matrix
        logits: F32 = table.product(normed) if isinstance(table, RowBlocks) else normed @ table.T
        return logits if self._softcap is None else softcap(logits, self._softcap)


class ReferenceModel:
    """A decoder in float32 numpy.

    Activations are float32 whatever the weights' format (BF16 weights are exact in it). Linears and the KV cache
    of an FP8 checkpoint round to e4m3 with the checkpoint's static scales, as TensorRT-LLM does.
    """

    def __init__(
        self, spec: ModelSpec, weights: Weights, kv_format: KvFormat = "bf16", longest: int | None = None
    ) -> None:
        """Read every tensor; raises ``UnknownArchitecture`` for a rope kind that cannot be run.

        ``longest`` is the longest sequence that will be run, tokens; None stands for what the model claims.
        """
        self.spec = spec
        self.kv_format: KvFormat = kv_format
        self._rotary = rotary_tables(spec, longest)
        self._embedding = Embedding(spec, weights)
        self._head = Head(spec, weights, self._embedding)
        self._layers = tuple(build_layer(spec, number, weights, kv_format) for number in range(len(spec.layers)))

    def new_cache(self) -> KvCache:
        """Return an empty cache for one sequence."""
        return KvCache([layer.new_cache() for layer in self._layers])

    def forward(
        self, tokens: Tokens, cache: KvCache, *, last_only: bool = False, observe: Observe | None = None
    ) -> F32:
        """Run the next tokens of the sequence that ``cache`` holds, and add them to it.

        Returns (tokens, vocab) logits, or (1, vocab) of the last token with ``last_only``, which spares a long
        prompt the head. At least one token must be given.
        """
        embedded = self._embedding(tokens)
        parts = [self._layers_of(embedded[at : at + _CHUNK], cache, observe) for at in range(0, len(embedded), _CHUNK)]
        hidden = np.concatenate(parts)
        return self._head(hidden[-1:] if last_only else hidden)

    def _layers_of(self, hidden: F32, cache: KvCache, observe: Observe | None) -> F32:
        start, count = cache.length, len(hidden)
        rotations = {table: table.at(start, count) for table in dict.fromkeys(self._rotary)}
        for layer, table, layer_cache in zip(self._layers, self._rotary, cache.layers, strict=True):
            hidden = layer(hidden, rotations[table], layer_cache, observe)
        return hidden
