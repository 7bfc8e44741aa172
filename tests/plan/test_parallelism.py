"""Splits: what stands in their way, which are legal, how layers fall to stages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.specs import hardware, llama, llama_70b, llama_405b, maverick, qwen3_moe, smollm2
from trtllm_kit.plan.parallelism import (
    Split,
    fast_reach,
    kv_heads_per_rank,
    kv_replication,
    legal_tensors,
    obstacles,
    stages,
)
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import ModelSpec


def rules(model: ModelSpec, split: Split, machine: Hardware) -> list[str]:
    """Return the rules of the obstacles."""
    return sorted(obstacle.rule for obstacle in obstacles(model, split, machine))


def test_a_split_that_runs_has_no_obstacle() -> None:
    """70B over eight GPUs of a board is free."""
    assert () == obstacles(llama_70b(), Split(8), hardware(8))


@pytest.mark.parametrize(
    ("model", "split", "found"),
    [
        (smollm2(), Split(2), ["PF1", "PF2"]),
        (llama(2, 64, 8, 8, 100), Split(8), ["PF6"]),
        (llama_70b(), Split(16), ["PF20"]),
        (llama_70b(), Split(4, pipeline=4), ["PF20"]),
        (llama(2, 64, 8, 8, 64), Split(1, pipeline=3), ["PF20"]),
        (llama_70b(), Split(8, expert=2), ["PF28"]),
        (qwen3_moe(2), Split(8, expert=3), ["PF28", "PF28"]),
        (qwen3_moe(2), Split(6, expert=6), ["PF1", "PF2", "PF28"]),
    ],
)
def test_each_obstacle_has_its_rule(model: ModelSpec, split: Split, found: list[str]) -> None:
    """Heads, widths, GPUs, stages and experts are told apart."""
    assert found == rules(model, split, hardware(8))


def test_tensor_ranks_over_the_network_are_a_soft_obstacle() -> None:
    """Two nodes of eight GPUs run tensor 16, slowly."""
    found = obstacles(llama_70b(), Split(16), hardware(8, nodes=2))
    assert [("PF20", False)] == [(obstacle.rule, obstacle.hard) for obstacle in found]


def test_an_nvlink_domain_over_nodes_is_as_good_as_a_node() -> None:
    """32 GPUs in one domain on 16 nodes of 2 take tensor 32."""
    machine = hardware(2, nodes=16, nvlink=32)
    assert 32 == fast_reach(machine)
    assert () == obstacles(llama_405b(), Split(32), machine)


def test_a_node_without_nvlink_is_still_one_node() -> None:
    """Eight GPUs on PCIe reach each other without the network; sixteen over two nodes do not."""
    machine = hardware(8, nodes=2, nvlink=1)
    assert 8 == fast_reach(machine)
    assert () == obstacles(llama_70b(), Split(8), machine)
    assert [False] == [obstacle.hard for obstacle in obstacles(llama_70b(), Split(16), machine)]


@given(tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.integers(1, 4), replicas=st.integers(1, 16))
def test_every_replica_has_gpus_of_its_own(tensor: int, pipeline: int, replicas: int) -> None:
    """Two boards of eight GPUs run as many copies as their ranks add up to sixteen, and no more."""
    split = Split(tensor, pipeline, replicas=replicas)
    found = obstacles(llama_70b(), split, hardware(8, nodes=2))
    assert split.gpus == tensor * pipeline * replicas == split.world_size * replicas
    assert (split.gpus > 16) == any(obstacle.hard for obstacle in found)


def test_replicas_that_straddle_nodes_are_a_soft_obstacle() -> None:
    """Of three copies of four ranks on two nodes of six GPUs, one lies over both nodes."""
    found = obstacles(llama_70b(), Split(4, replicas=3), hardware(6, nodes=2))
    assert [("PF20", False)] == [(obstacle.rule, obstacle.hard) for obstacle in found]
    assert () == obstacles(llama_70b(), Split(4, replicas=2), hardware(6, nodes=2))
    assert () == obstacles(llama_405b(), Split(16, replicas=2), hardware(2, nodes=16, nvlink=32))


def test_replicas_leave_fewer_tensor_ranks() -> None:
    """Two copies on eight GPUs have four each."""
    assert (1, 2, 4) == legal_tensors(llama_70b(), hardware(8), Split(replicas=2))


def test_a_shared_expert_is_split_over_all_tensor_ranks() -> None:
    """Expert ranks keep routed experts whole, and the shared one still lies over every tensor rank."""
    layer = maverick().layers[1]
    odd = layer.feed_forward.model_copy(update={"shared_intermediate": 8196})
    model = maverick().model_copy(update={"layers": (layer.model_copy(update={"feed_forward": odd}),)})
    found = obstacles(model, Split(8, 1, 8), hardware(8))
    assert ["8196 / 8 ranks is not whole"] == [obstacle.compared for obstacle in found]


@pytest.mark.parametrize(
    ("model", "gpus", "expert", "legal"),
    [
        (llama_70b(), 8, 1, (1, 2, 4, 8)),
        (smollm2(), 8, 1, (1, 3)),
        (qwen3_moe(2), 8, 8, (8,)),
        (maverick(), 8, 1, (1, 2, 4, 8)),
        (llama_70b(), 8, 2, ()),
    ],
)
def test_legal_tensor_ranks(model: ModelSpec, gpus: int, expert: int, legal: tuple[int, ...]) -> None:
    """Heads and KV heads decide; a model without experts takes no expert ranks."""
    assert legal == legal_tensors(model, hardware(gpus), Split(expert=expert))


@pytest.mark.parametrize(("tensor", "copies", "held"), [(1, 1, 8), (4, 1, 2), (8, 1, 1), (32, 4, 1)])
def test_kv_heads_are_split_then_copied(tensor: int, copies: int, held: int) -> None:
    """Eight KV heads over 32 ranks are held four times."""
    model = llama_405b()
    assert copies == kv_replication(model, tensor)
    assert held == kv_heads_per_rank(model.layers[0].attention, tensor)


@given(layers=st.integers(1, 130), pipeline=st.integers(1, 16))
def test_stages_hold_every_layer_once_and_differ_by_at_most_one(layers: int, pipeline: int) -> None:
    """The first stages take what is left over, as the runtime splits layers."""
    found = stages(llama(layers, 64, 4, 4, 64), pipeline)
    sizes = [len(stage) for stage in found]
    assert list(range(layers)) == [number for stage in found for number in stage]
    assert sorted(sizes, reverse=True) == sizes
    assert max(sizes) - min(sizes) <= 1
