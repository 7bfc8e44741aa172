"""What sparse attention caches beside keys and values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.sparse_configs import read_sparse
from tests.spec.test_real_models import spec_of
from trtllm_kit.plan.llm_keys import attention_windows
from trtllm_kit.plan.memory import kv_bytes_per_token
from trtllm_kit.plan.sparse_cache import beyond_bytes, beyond_bytes_per_token, index_bytes


@pytest.mark.parametrize(
    ("name", "element_bytes", "expected"),
    [
        ("zai-org--GLM-5", 2, 100_152),
        ("zai-org--GLM-5", 1, 78 * (576 + 132)),
        ("zai-org--GLM-5.2", 2, 78 * 1152 + 21 * 132),
        ("deepseek-ai--DeepSeek-V3.2", 2, 61 * (1152 + 132)),
        ("nvidia--MiniMax-M3-NVFP4", 2, 60 * 2 * 4 * 128 * 2 + 57 * 256),
        ("nvidia--MiniMax-M3-NVFP4", 1, 60 * 2 * 4 * 128 + 57 * 256),
        ("moonshotai--Kimi-K3", 2, 24 * 1152),
    ],
)
def test_bytes_of_a_token(shared: Path, name: str, element_bytes: float, expected: int) -> None:
    """The keys of indexers keep their own format; GLM-5's 100,152 are what TensorRT-LLM's cache manager allocates."""
    assert expected == kv_bytes_per_token(spec_of(shared, name).layers, 1, element_bytes)


def test_the_tensor_ranks_each_have_all_keys_of_an_indexer() -> None:
    """Two ranks share out the KV heads of MiniMax-M3, and not the keys of 8 elements that blocks are chosen by."""
    layers = read_sparse("minimax_m3").layers
    keys, values = 2 * 8 * 2, 4 * 2 * 2 * 8 * 2

    assert [keys + values, keys + values // 2] == [kv_bytes_per_token(layers, ranks, 2) for ranks in (1, 2)]


def test_layers_that_take_the_choice_of_another_have_no_keys() -> None:
    """Of GLM's four small layers two have an indexer."""
    spec = read_sparse("glm_moe_dsa")

    assert [8, 0, 8, 0] == [index_bytes(attention) for attention in spec.attentions]


def test_what_stands_for_the_tokens_beyond_a_window() -> None:
    """One vector for every 4 or 128 whole tokens, a 4-bit key beside it where an indexer chooses, and what waits.

    A sequence of 1,000 tokens: 250 vectors of 16 x 2 B and 4 B; 7 of 16 x 2 B. What waits is a value and a score of
    4 B for each element: two spans of 4 tokens of twice 16 + 8 elements, one span of 128 of 16.
    """
    window, overlapping, long, _ = read_sparse("deepseek_v4").attentions

    assert 0 == beyond_bytes(window, 1000, 2)
    assert 250 * (32 + 4) + 2 * 4 * 2 * (16 + 8) * 2 * 4 == beyond_bytes(overlapping, 1000, 2)
    assert 7 * 32 + 128 * 16 * 2 * 4 == beyond_bytes(long, 1000, 2)
    assert [0.0, 9.0, 0.25] == [beyond_bytes_per_token(one, 2) for one in (window, overlapping, long)]


def test_a_sequence_of_a_million_tokens(shared: Path) -> None:
    """DeepSeek-V4-Pro: 30 layers of 262,144 vectors and 31 of 8,192; at the 576 B of its report they take 4.36 GiB."""
    attentions = spec_of(shared, "deepseek-ai--DeepSeek-V4-Pro").attentions
    vectors = sum(2**20 // one.compression.ratio for one in attentions if one.compression and one.compression.ratio)
    held = sum(beyond_bytes(one, 2**20, 2) for one in attentions)

    assert pytest.approx(4.355, abs=0.001) == vectors * 576 / 2**30
    assert pytest.approx(vectors * 1024 + 30 * 262_144 * 68, rel=0.01) == held


def test_the_window_of_compressed_attention_is_no_setting() -> None:
    """A window of 16 is shorter than 128 tokens, and is left to the runtime, which caches more than the window."""
    assert () == attention_windows(read_sparse("deepseek_v4"), 128)
