"""Collectives of one prefill."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.specs import llama_8b, llama_405b
from trtllm_kit.plan.communication import all_reduces, communication_plan, ring_bytes_sent
from trtllm_kit.plan.parallelism import Split


def test_405b_over_32_ranks_at_122880_tokens() -> None:
    """252 all-reduces move 1.015 TB of hidden states, and each GPU sends 1.97 TB."""
    traffic = communication_plan(llama_405b(), Split(32), 122_880)
    assert 252 == traffic.all_reduces
    assert 126 * 2 * 122_880 * 16_384 * 2 == traffic.payload_bytes == 1_014_686_023_680
    assert 1_965_954_170_880 == traffic.sent_bytes_per_gpu


def test_one_rank_reduces_nothing() -> None:
    """Without tensor ranks there is nothing to exchange."""
    traffic = communication_plan(llama_8b(), Split(1, 2), 1000)
    assert (0, 0, 0) == (traffic.all_reduces, traffic.payload_bytes, traffic.sent_bytes_per_gpu)
    assert 64 == all_reduces(llama_8b(), 2)


@pytest.mark.parametrize(("pipeline", "layers"), [(1, 32), (2, 16), (3, 11)])
def test_a_gpu_sends_only_for_the_layers_of_its_stage(pipeline: int, layers: int) -> None:
    """Two stages halve what a GPU sends, not what is reduced; of three uneven ones the longest counts."""
    traffic = communication_plan(llama_8b(), Split(4, pipeline), 1000)
    assert 64 * 1000 * 4096 * 2 == traffic.payload_bytes
    assert 64 == traffic.all_reduces
    assert 2 * layers * 1000 * 4096 * 2 * 2 * 3 // 4 == traffic.sent_bytes_per_gpu


@given(chunks=st.integers(1, 1000), ranks=st.integers(2, 64))
def test_the_ring_sends_what_its_steps_add_up_to(chunks: int, ranks: int) -> None:
    """A ring reduces in n - 1 steps of one n-th and gathers in n - 1 more."""
    payload = chunks * ranks
    by_steps = sum(Fraction(payload, ranks) for _ in range(2 * (ranks - 1)))
    assert by_steps == ring_bytes_sent(payload, ranks)
