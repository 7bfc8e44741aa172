"""The KV cache grows without losing anything, and rounds to FP8 when it has scales."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.dtypes import round_e4m3
from trtllm_kit.reference.kv_cache import KvCache, KvScales, LayerCache


@given(st.lists(st.integers(1, 90), min_size=1, max_size=8))
def test_everything_appended_stays_in_order(pieces: list[int]) -> None:
    """Whatever the pieces, the cache returns all keys and values in the order they came."""
    cache = LayerCache(kv_heads=2, head_dim=4)
    random = np.random.default_rng(0)
    keys = [random.standard_normal((count, 2, 4)).astype(np.float32) for count in pieces]
    for piece in keys:
        all_keys, all_values = cache.append(piece, -piece)
    expected = np.concatenate(keys).swapaxes(0, 1)
    assert sum(pieces) == cache.length
    np.testing.assert_array_equal(expected, all_keys)
    np.testing.assert_array_equal(-expected, all_values)


def test_fp8_entries_are_multiples_of_their_own_scale() -> None:
    """Keys and values are rounded with two different scales."""
    cache = LayerCache(1, 4, KvScales(key=0.25, value=2.0))
    piece = np.array([[[1.06, -3.3, 0.01, 500.0]]], np.float32)
    keys, values = cache.append(piece, piece)
    np.testing.assert_array_equal(round_e4m3(piece[0] / np.float32(0.25)) * np.float32(0.25), keys[0])
    np.testing.assert_array_equal(round_e4m3(piece[0] / np.float32(2.0)) * np.float32(2.0), values[0])
    assert 112.0 == keys.max()


def test_the_length_of_a_model_s_cache_is_that_of_its_layers() -> None:
    """An empty cache has length zero."""
    layers = [LayerCache(1, 2), LayerCache(1, 2)]
    assert 0 == KvCache(layers).length
    for layer in layers:
        layer.append(np.zeros((3, 1, 2), np.float32), np.zeros((3, 1, 2), np.float32))
    assert 3 == KvCache(layers).length
