"""Attention against loops that anyone can check."""

from __future__ import annotations

import numpy as np
import pytest

from trtllm_kit.reference import attention
from trtllm_kit.reference.attention import attend, temperature
from trtllm_kit.spec.model import Attention, QueryTemperature


def shape(kind: str = "full", window: int | None = None) -> Attention:
    """Four heads over two KV heads of width eight."""
    return Attention.model_validate({"kind": kind, "heads": 4, "kv_heads": 2, "head_dim": 8, "window": window})


def slow(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Attend head by head and token by token."""
    tokens, heads, width = queries.shape
    out = np.zeros((tokens, heads, width))
    for token in range(tokens):
        for head in range(heads):
            seen = np.flatnonzero(visible[token])
            scores = np.array([queries[token, head] @ keys[head // 2, at] for at in seen]) / width**0.5
            weights = np.exp(scores - scores.max())
            out[token, head] = (weights / weights.sum()) @ values[head // 2, seen]
    return out.reshape(tokens, -1)


@pytest.mark.parametrize(
    ("kind", "window", "rule"),
    [
        ("full", None, lambda query, key: key <= query),
        ("sliding", 3, lambda query, key: query - 3 < key <= query),
        ("chunked", 4, lambda query, key: key <= query and key // 4 == query // 4),
    ],
)
@pytest.mark.parametrize("tokens", [1, 5, 10])
def test_every_kind_sees_what_its_rule_allows(kind: str, window: int | None, rule: object, tokens: int) -> None:
    """The newest 1, 5 or all 10 tokens of a sequence attend as the loops do."""
    random = np.random.default_rng(tokens)
    queries = random.standard_normal((tokens, 4, 8)).astype(np.float32)
    keys, values = random.standard_normal((2, 2, 10, 8)).astype(np.float32)
    visible = np.array([[rule(10 - tokens + query, key) for key in range(10)] for query in range(tokens)])
    expected = slow(queries, keys, values, visible)
    np.testing.assert_allclose(expected, attend(queries, keys, values, shape(kind, window)), atol=1e-5)


def test_query_temperature_grows_by_steps_of_its_floor() -> None:
    """1 + 0.5 ln(1 + floor((p + 1) / 4)) for positions 2, 3 and 8."""
    factors = temperature(QueryTemperature(floor=4, scale=0.5), 0, 9)
    np.testing.assert_allclose([1.0, 1 + 0.5 * np.log(2), 1 + 0.5 * np.log(3)], factors[[2, 3, 8]], rtol=1e-6)


def test_a_sink_takes_weight_from_the_tokens() -> None:
    """A sink as strong as the only token halves what is seen of it; one far below changes nothing."""
    shape = Attention(kind="full", heads=2, kv_heads=1, head_dim=4, sinks=True)
    queries, keys = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 4), np.float32)
    values = np.full((1, 1, 4), 3.0, np.float32)
    sinks = np.array([2.0, -100.0], np.float32)  # the token's score is 4 / sqrt(4)
    np.testing.assert_allclose([[1.5] * 4 + [3.0] * 4], attend(queries, keys, values, shape, sinks), rtol=1e-6)


def test_a_scale_of_its_own_and_a_cap_shape_the_scores() -> None:
    """Scores of 8 and 0, scaled by 0.5 and capped at 2, weigh the values as 2 tanh(2) and 0 do."""
    made = Attention(kind="full", heads=1, kv_heads=1, head_dim=4, scale=0.5, softcap=2.0)
    queries = np.full((1, 1, 4), 2.0, np.float32)
    keys = np.array([[[1, 1, 1, 1], [0, 0, 0, 0]]], np.float32)
    values = np.array([[[1, 1, 1, 1], [0, 0, 0, 0]]], np.float32)
    weight = 1 / (1 + np.exp(-2 * np.tanh(2.0)))
    np.testing.assert_allclose([[weight] * 4], attend(queries, keys, values, made), rtol=1e-6)


@pytest.mark.parametrize(("kind", "window"), [("full", None), ("sliding", 3), ("chunked", 4)])
def test_scores_of_a_few_queries_at_a_time_are_those_of_all(
    kind: str, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven queries over ten positions, held two at a time, see what they saw together."""
    random = np.random.default_rng(7)
    queries = random.standard_normal((7, 4, 8)).astype(np.float32)
    keys, values = random.standard_normal((2, 2, 10, 8)).astype(np.float32)
    together = attend(queries, keys, values, shape(kind, window))
    monkeypatch.setattr(attention, "_SCORES", 4 * 10 * 2)
    np.testing.assert_allclose(together, attend(queries, keys, values, shape(kind, window)), atol=1e-6)
