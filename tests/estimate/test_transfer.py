"""What keys and values of a prompt take on their way to another server."""

from __future__ import annotations

import pytest

from tests.support.specs import llama_70b
from trtllm_kit.estimate.links import between_servers
from trtllm_kit.estimate.transfer import Sending, sending
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.ceilings import known_of
from trtllm_kit.spec.load import hardware_for, load_hardware, load_profile

TOKEN = 80 * 2 * 8 * 128
"""Bytes of a token of Llama 3.1 70B with an 8-bit cache: layers, keys and values, heads, elements."""


def sent(tensor: int, servers: int = 2) -> Sending:
    """Send prompts between servers of so many ranks on eight H200."""
    loaded = with_changes(load_profile("h200x8-offline"), {"parallelism.tensor": tensor, "parallelism.replicas": 1})
    machine = hardware_for(loaded.profile)
    return sending(make_plan(llama_70b(), loaded, machine), machine, servers, 3072)


def test_a_prompt_is_its_cache_over_the_reached_link() -> None:
    """A thousand tokens of 70B take their bytes over the share of NVLink that is reached, and the time to begin."""
    link, known = sent(1), known_of(load_hardware("h200x8-700w").gpu, "1.2.1").ceilings
    expected = known.reduce_seconds + 1000 * TOKEN / (450e9 * known.link_share)
    assert expected == pytest.approx(link.transfer.seconds(1000))


def test_ranks_send_their_parts_side_by_side() -> None:
    """Four ranks hold a quarter of a token each, and send the same bytes over four links."""
    one, four = sent(1).transfer, sent(4).transfer
    assert one.bytes_per_token == pytest.approx(four.bytes_per_token)
    assert 4 * one.bytes_per_second == pytest.approx(four.bytes_per_second)


def test_the_interval_is_that_of_the_link() -> None:
    """A link that reaches more is quicker: the value lies between both bounds, and they differ."""
    term = sent(1).term(8192)
    assert term.low < term.seconds < term.high


@pytest.mark.parametrize(
    ("name", "gpus", "over"),
    [
        ("h200x8-700w", 8, "NVLink"),
        ("gb200-nvl72", 72, "NVLink"),
        ("gh200-nvl32", 32, "NVLink"),
        ("l40sx8", 8, "PCIe"),
        ("l40s-cluster", 4, "PCIe"),
        ("l40s-cluster", 16, "network"),
    ],
)
def test_servers_reach_each_other_over_what_they_share(name: str, gpus: int, over: str) -> None:
    """GPUs of one NVLink domain use it, those of a node without one PCIe, and those of several nodes the network."""
    machine = load_hardware(name)
    way = between_servers(machine, known_of(machine.gpu, "1.2.1").ceilings, gpus)
    assert over == way.over
