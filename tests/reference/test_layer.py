"""What a decoder layer does around its attention and its feed-forward block, step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.reference.layer import build_layer
from trtllm_kit.reference.model import Embedding, Head
from trtllm_kit.reference.rope import rotary_tables


def test_gemma_norms_before_and_behind_each_part_by_one_more_than_is_stored(tmp_path: Path) -> None:
    """Four norms a layer, and what is added to the hidden state is the normed answer."""
    opened = open_checkpoint(write_tiny_model(tmp_path, "gemma2"))
    layer = build_layer(opened.model, 0, opened.weights, "bf16")
    rotation = rotary_tables(opened.model)[0].at(0, 5)
    hidden = np.random.default_rng(2).standard_normal((5, 64)).astype(np.float32)

    def normed(values: np.ndarray, name: str) -> np.ndarray:
        size = np.sqrt(np.mean(np.square(values), axis=-1, keepdims=True) + np.float32(opened.model.norm_epsilon))
        return values / size * (1 + opened.weights.tensor(f"model.layers.0.{name}_layernorm.weight"))

    attended = layer.attention(normed(hidden, "input"), rotation, layer.new_cache())
    middle = hidden + normed(attended, "post_attention")
    fed = layer.feed_forward(normed(middle, "pre_feedforward"))

    expected = middle + normed(fed, "post_feedforward")
    np.testing.assert_allclose(expected, layer(hidden, rotation, layer.new_cache()), rtol=1e-4, atol=1e-5)


def test_gemma_scales_its_embedding_and_bends_its_logits(tmp_path: Path) -> None:
    """An embedding is multiplied by the root of its width, 64; no logit passes the cap of the config."""
    opened = open_checkpoint(write_tiny_model(tmp_path, "gemma2"))
    model = opened.model.model_copy(update={"logit_softcap": 2.0})
    hidden = np.full((1, 64), 5.0, np.float32)
    plain = Head(model.model_copy(update={"logit_softcap": None}), opened.weights)(hidden)
    bent = Head(model, opened.weights)(hidden)

    table = opened.weights.tensor("model.embed_tokens.weight")
    np.testing.assert_allclose(8.0 * table[[3, 7]], Embedding(model, opened.weights)([3, 7]), rtol=1e-6)
    assert np.abs(plain).max() > 2.0
    np.testing.assert_allclose(2.0 * np.tanh(plain / 2.0), bent, rtol=1e-5)
