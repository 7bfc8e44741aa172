"""Latent attention against plain attention over the expanded keys and values, and what its cache holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.load import load_reference
from trtllm_kit.dtypes import F32
from trtllm_kit.reference import latent

TOKENS = np.random.default_rng(2).integers(0, 272, size=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a random DeepSeek-V3."""
    return write_tiny_model(tmp_path_factory.mktemp("deepseek"), "deepseek_v3", seed=4)


def test_the_cache_holds_the_latent_vector_and_one_key(folder: Path) -> None:
    """32 + 8 numbers a token and layer, for four heads, and no values."""
    model = load_reference(folder)
    cache = model.new_cache()
    model.forward(TOKENS, cache)
    keys, values = cache.layers[0].append(np.zeros((1, 1, 40), np.float32), np.zeros((1, 1, 0), np.float32))
    assert ((1, 21, 40), (1, 21, 0)) == (keys.shape, values.shape)


def test_one_token_at_a_time_gives_the_logits_of_the_whole_prompt(folder: Path) -> None:
    """Expanding the cached vectors again is expanding them once."""
    model = load_reference(folder)
    whole = model.forward(TOKENS, model.new_cache())
    cache = model.new_cache()
    single = np.concatenate([model.forward(TOKENS[at : at + 1], cache) for at in range(len(TOKENS))])
    np.testing.assert_allclose(whole, single, rtol=1e-4, atol=1e-4)


def test_the_latent_vector_is_cached_behind_its_norm(folder: Path) -> None:
    """Without the norm's weights its root mean square is one."""
    model = load_reference(folder)
    cache = model.new_cache()
    model.forward(TOKENS, cache)
    keys, _ = cache.layers[0].append(np.zeros((0, 1, 40), np.float32), np.zeros((0, 1, 0), np.float32))
    block = model._layers[0].attention
    latent = keys[0, :, :32] / block.latent_norm
    np.testing.assert_allclose(np.ones(20), np.sqrt(np.mean(np.square(latent), axis=-1)), rtol=1e-3)


def test_the_key_that_all_heads_share_is_cached_turned_to_its_position(folder: Path) -> None:
    """The same token at two positions has two keys, each of the length of the unturned one, and one latent vector."""
    model = load_reference(folder)
    block, rotary = model._layers[0].attention, model._rotary[0]
    hidden = np.tile(np.random.default_rng(3).standard_normal((1, 64)).astype(np.float32), (6, 1))
    raw = block.down(hidden)[:, None, 32:]
    cache = block.new_cache(None)
    block(hidden, rotary.at(0, 6), cache)
    entries, _ = cache.append(np.zeros((0, 1, 40), np.float32), np.zeros((0, 1, 0), np.float32))

    np.testing.assert_allclose(rotary.at(0, 6).apply(raw)[:, 0], entries[0, :, 32:], rtol=1e-6)
    np.testing.assert_array_equal(np.tile(entries[0, :1, :32], (6, 1)), entries[0, :, :32])
    assert not np.allclose(entries[0, 1, 32:], entries[0, 5, 32:])


def test_the_norms_of_the_latent_vectors_keep_values_of_the_size_of_a_thousandth(folder: Path) -> None:
    """Their epsilon is 1e-6, whatever config.json says of the others: a root mean square of 0.001 becomes 0.71."""
    block = load_reference(folder)._layers[0].attention
    cache = block.new_cache(None)
    hidden = np.random.default_rng(3).standard_normal((1, 64)).astype(np.float32)
    size = np.sqrt(np.mean(np.square(block.down(hidden)[:, :32])))
    block(hidden * np.float32(1e-3 / size), load_reference(folder)._rotary[0].at(0, 1), cache)
    entries, _ = cache.append(np.zeros((0, 1, 40), np.float32), np.zeros((0, 1, 0), np.float32))
    normed = entries[0, 0, :32] / block.latent_norm

    np.testing.assert_allclose(np.sqrt(0.5), np.sqrt(np.mean(np.square(normed))), rtol=1e-3)


@pytest.mark.parametrize("heads", [1, 3])
def test_heads_that_are_expanded_apart_give_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch, heads: int) -> None:
    """One after the other or three and then the fourth, in place of all four."""
    model = load_reference(folder)
    whole = model.forward(TOKENS, model.new_cache())
    block = model._layers[0].attention
    monkeypatch.setattr(latent, "_EXPANDED", heads * len(TOKENS) * (block.latent.nope_dim + block.latent.value_dim))
    groups: list[int] = []
    attend = latent.attend

    def counted(queries: F32, *rest: Any) -> F32:
        groups.append(queries.shape[1])
        return attend(queries, *rest)

    monkeypatch.setattr(latent, "attend", counted)
    np.testing.assert_allclose(whole, model.forward(TOKENS, model.new_cache()), rtol=1e-4, atol=1e-5)
    assert ([1, 1, 1, 1] if heads == 1 else [3, 1]) == groups[: len(groups) // len(model._layers)]
