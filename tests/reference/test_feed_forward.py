"""Dense blocks and mixtures of experts against token-by-token loops."""

from __future__ import annotations

import numpy as np
import pytest

from trtllm_kit.reference.feed_forward import ClippedBlock, DenseBlock, ExpertsBlock, Llama4Experts
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import sigmoid, silu, softmax
from trtllm_kit.reference.routing import Router
from trtllm_kit.spec.model import Routing

RANDOM = np.random.default_rng(3)


def linear(name: str, rows: int, columns: int) -> Linear:
    """Make a random layer."""
    return Linear(name, RANDOM.standard_normal((rows, columns)).astype(np.float32) / 4)


def block(name: str) -> DenseBlock:
    """Make a random block of width 8 over hidden 16."""
    return DenseBlock(linear(f"{name}.gate", 8, 16), linear(f"{name}.up", 8, 16), linear(f"{name}.down", 16, 8), silu)


HIDDEN = RANDOM.standard_normal((9, 16)).astype(np.float32)
EXPERTS = tuple(block(f"experts.{number}") for number in range(4))
ROUTER = linear("router", 4, 16)


def test_a_dense_block_gates_before_it_projects_down() -> None:
    """down(silu(gate(x)) * up(x))."""
    dense = EXPERTS[0]
    opened = silu(HIDDEN @ dense.gate.weight.T) * (HIDDEN @ dense.up.weight.T)
    np.testing.assert_allclose(opened @ dense.down.weight.T, dense(HIDDEN), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("normalise", [True, False])
def test_each_token_mixes_its_two_most_likely_experts(normalise: bool) -> None:
    """Shares are the router's probabilities, scaled to one only when the family does so."""
    mixed = ExpertsBlock(Router(ROUTER, 2, Routing(normalise=normalise)), EXPERTS)(HIDDEN)
    for token, row in enumerate(softmax(HIDDEN @ ROUTER.weight.T)):
        best = np.argsort(row)[::-1][:2]
        shares = row[best] / (row[best].sum() if normalise else 1.0)
        answers = [EXPERTS[number](HIDDEN[token : token + 1])[0] for number in best]
        expected = shares[0] * answers[0] + shares[1] * answers[1]
        np.testing.assert_allclose(expected, mixed[token], rtol=1e-4, atol=1e-5)


def test_llama4_scales_the_input_of_an_expert_and_adds_the_shared_one() -> None:
    """The sigmoid of the router's score multiplies the token before its expert, not the expert's answer."""
    shared = block("shared")
    mixed = Llama4Experts(ROUTER, EXPERTS, shared, 1)(HIDDEN)
    for token, row in enumerate(HIDDEN @ ROUTER.weight.T):
        best = int(row.argmax())
        state = HIDDEN[token : token + 1]
        expected = shared(state) + EXPERTS[best](state * sigmoid(row[best : best + 1]))
        np.testing.assert_allclose(expected[0], mixed[token], rtol=1e-4, atol=1e-5)


def test_experts_without_a_token_are_not_run() -> None:
    """The observer hears of the chosen experts alone."""
    seen: set[str] = set()
    chosen = ExpertsBlock(Router(ROUTER, 1, Routing()), EXPERTS)
    chosen(HIDDEN[:1], lambda name, values: seen.add(name.rpartition(".")[0]))
    assert 1 == len({name for name in seen if name.startswith("experts.")})


def test_the_shared_expert_answers_every_token() -> None:
    """Its answer is added whole, whatever the router says."""
    shared, router = block("shared"), Router(ROUTER, 2, Routing())
    alone, together = ExpertsBlock(router, EXPERTS)(HIDDEN), ExpertsBlock(router, EXPERTS, shared)(HIDDEN)
    np.testing.assert_allclose(alone + shared(HIDDEN), together, rtol=1e-4, atol=1e-5)


def test_a_clipped_block_holds_gate_and_up_within_the_limit() -> None:
    """gpt-oss bounds the gate from above alone and up on both sides, and adds one to up."""
    one = ClippedBlock(linear("gate", 8, 16), linear("up", 8, 16), linear("down", 16, 8), limit=0.5)
    gate, up = np.minimum(HIDDEN @ one.gate.weight.T, 0.5), np.clip(HIDDEN @ one.up.weight.T, -0.5, 0.5)
    opened = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
    assert gate.min() < -0.5
    np.testing.assert_allclose(opened @ one.down.weight.T, one(HIDDEN), rtol=1e-4, atol=1e-5)
