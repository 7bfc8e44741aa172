"""Counts and names that follow from a spec."""

from __future__ import annotations

import pytest

from trtllm_kit.spec.tensors import Role, active_parameters, layer_tensors, model_tensors, parameters

from .configs import FAMILIES, read


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_parameters_are_the_sum_over_tensors(family: str) -> None:
    """Counts of copies and of names agree for every family."""
    spec = read(family)
    facts = list(model_tensors(spec))

    assert parameters(spec) == sum(fact.elements for fact in facts)
    assert all(fact.copies == len(list(fact.names())) for fact in facts)
    assert len([name for fact in facts for name in fact.names()]) == len({n for fact in facts for n in fact.names()})


def test_a_tied_model_has_no_head() -> None:
    """Tied embeddings take one matrix off the count."""
    assert 64 * 32 == parameters(read("llama")) - parameters(read("llama", tie_word_embeddings=True))


def test_active_parameters_count_the_chosen_experts() -> None:
    """A token of a 4-expert model that chooses 2 skips half of the expert weights and nothing else."""
    spec = read("mixtral")
    routed = 4 * 4 * 3 * 48 * 32

    assert routed // 2 == parameters(spec) - active_parameters(spec)


def test_the_shared_expert_is_always_active() -> None:
    """Llama 4 skips three of four routed experts, not the shared one."""
    spec = read("llama4")

    assert 4 * (3 * 3 * 48 * 32) == parameters(spec) - active_parameters(spec)


def test_dense_models_are_all_active() -> None:
    """Without experts every parameter is read for every token."""
    assert parameters(read("qwen2")) == active_parameters(read("qwen2"))


def test_roles_of_a_layer_in_file_order() -> None:
    """A Qwen2 layer has biases on q, k and v alone."""
    roles = [(fact.role, len(fact.shape)) for fact in layer_tensors(read("qwen2"), 0)]

    assert [
        (Role.NORM, 1), (Role.QUERY, 2), (Role.QUERY, 1), (Role.KEY, 2), (Role.KEY, 1), (Role.VALUE, 2),
        (Role.VALUE, 1), (Role.ATTENTION_OUT, 2), (Role.NORM, 1), (Role.GATE, 2), (Role.UP, 2), (Role.DOWN, 2),
    ] == roles  # fmt: skip
