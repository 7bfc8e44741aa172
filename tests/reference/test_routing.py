"""The choice of experts against a loop over tokens and groups."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import sigmoid
from trtllm_kit.reference.routing import Router
from trtllm_kit.spec.model import Routing

HIDDEN = 16
EXPERTS = 8


def router(seed: int, per_token: int, routing: Routing, bias: bool = False) -> Router:
    """Make a random router over eight experts."""
    random = np.random.default_rng(seed)
    weight = random.standard_normal((EXPERTS, HIDDEN)).astype(np.float32) / 4
    added = random.standard_normal(EXPERTS).astype(np.float32)
    return Router(Linear("router", weight), per_token, routing, added if bias else None)


def tokens(seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Make random hidden states of five tokens."""
    return np.random.default_rng(seed + 1000).standard_normal((5, HIDDEN)).astype(np.float32)


@given(seed=st.integers(0, 500), open_groups=st.integers(1, 4), per_token=st.integers(1, 2))
def test_experts_come_from_the_groups_with_the_best_pairs(seed: int, open_groups: int, per_token: int) -> None:
    """A token's experts are the best, with the choice bias, of the groups whose two best sum to most."""
    routing = Routing(scoring="sigmoid", groups=4, groups_per_token=open_groups)
    one = router(seed, per_token, routing, bias=True)
    chosen, _ = one(tokens(seed))
    for row, found in zip(sigmoid(tokens(seed) @ one.linear.weight.T) + one.choice_bias, chosen, strict=True):
        pairs = [float(row[group * 2 : group * 2 + 2].sum()) for group in range(4)]
        best_groups = sorted(range(4), key=lambda group: -pairs[group])[:open_groups]
        allowed = [expert for expert in range(EXPERTS) if expert // 2 in best_groups]
        assert sorted(allowed, key=lambda expert: -row[expert])[:per_token] == found.tolist()


@given(seed=st.integers(0, 200), scale=st.floats(0.5, 3.0))
def test_normalised_shares_sum_to_the_scale(seed: int, scale: float) -> None:
    """DeepSeek's shares of a token sum to ``routed_scaling_factor``."""
    _, share = router(seed, 3, Routing(scoring="sigmoid", scale=scale), bias=True)(tokens(seed))
    np.testing.assert_allclose(np.full(5, scale), share.sum(axis=-1), rtol=1e-5)


def test_the_choice_bias_does_not_change_a_share() -> None:
    """With all experts chosen, shares are the scores whatever the bias."""
    routing = Routing(scoring="sigmoid", normalise=False)
    biased, plain = (router(7, EXPERTS, routing, bias=bias)(tokens(7)) for bias in (True, False))
    for (chosen, share), (others, expected) in zip(zip(*biased, strict=True), zip(*plain, strict=True), strict=True):
        assert chosen.tolist() != others.tolist()
        np.testing.assert_allclose(expected[np.argsort(others)], share[np.argsort(chosen)], rtol=1e-6)
