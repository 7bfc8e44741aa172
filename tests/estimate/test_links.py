"""Collectives by hand: latency, volume, multicast, nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trtllm_kit.estimate.links import Links, hand_over, links_of
from trtllm_kit.spec.ceilings import Ceilings, known_of
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import load_hardware


def machine(name: str = "h200x8-700w", **changes: object) -> Hardware:
    """Return a machine of the catalogue."""
    return load_hardware(name).model_copy(update=changes)


def ceilings(**changes: float) -> Ceilings:
    """Return Hopper's constants with round ones in place."""
    known = known_of(machine().gpu, "1.2.1").ceilings
    return replace(known, **({"link_share": 0.5, "ring_seconds": 1e-5, "reduce_hidden": 0.0} | changes))


RATE = 450e9 * 0.5
"""Bytes a second of half an NVLink of H200."""


def test_one_rank_exchanges_nothing() -> None:
    """No collective takes time on one rank."""
    links = links_of(machine(), ceilings(), 1)
    assert 0.0 == links.all_reduce(1e9)
    assert 0.0 == links.exchange(1e9)


def test_small_payloads_go_in_one_shot_and_large_ones_in_two_phases() -> None:
    """One shot brings every rank what 7 others have; two phases over switches bring it 9/8 of the payload."""
    found = links_of(machine(), ceilings(reduce_seconds=2e-6, reduce_rank_seconds=1e-6), 8)
    assert pytest.approx(4e-6 + 7 * 8192 / RATE) == found.all_reduce(8192)
    assert pytest.approx(3e-5 + 9 / 8 * 1e9 / RATE) == found.all_reduce(1e9)


def test_without_switches_that_add_up_a_ring_sends_more() -> None:
    """A ring of 8 sends 2 x 7/8 of the payload."""
    found = links_of(machine(nvlink_multicast=False), ceilings(), 8)
    assert pytest.approx(3e-5 + 14 / 8 * 1e9 / RATE) == found.all_reduce(1e9)


def test_what_products_hide_of_a_reduction_costs_nothing() -> None:
    """Half hidden leaves half, where switches add up; a ring needs the cores, and hides nothing."""
    whole, half = (links_of(machine(), ceilings(reduce_hidden=hidden), 8) for hidden in (0.0, 0.5))
    assert pytest.approx(whole.all_reduce(1e9) / 2) == half.all_reduce(1e9)
    rings = [links_of(machine(nvlink_multicast=False), ceilings(reduce_hidden=hidden), 8) for hidden in (0.0, 0.5)]
    assert rings[0].all_reduce(1e9) == rings[1].all_reduce(1e9)


def test_a_domain_of_32_needs_no_network() -> None:
    """In one NVLink domain 32 ranks reduce more than twice as fast as over 4 nodes."""
    inside = links_of(machine("gh200-nvl32"), ceilings(), 32).all_reduce(1e9)
    between = links_of(machine("h100x8", nodes=4), ceilings(), 32).all_reduce(1e9)
    assert 2 * inside < between


def test_ranks_share_a_bridge_as_much_as_their_architecture_says() -> None:
    """Eight ranks on PCIe get a quarter of a link each where they share one, and all of it where they do not."""
    cards = machine("l40sx8")
    free, shared = (links_of(cards, ceilings(bridge_crowding=power), 8).phases_byte for power in (0.0, 1.0))
    assert pytest.approx(4 * free) == shared


def test_handing_over_between_stages_takes_the_link_between_them() -> None:
    """The next stage is near in the same NVLink domain, behind the network beyond it, and on PCIe behind a bridge."""
    near = hand_over(machine(), ceilings(), 4, 1e9)
    far = hand_over(machine("h100x8", nodes=2), ceilings(), 8, 1e9)
    assert pytest.approx(ceilings().reduce_seconds + 1e9 / RATE) == near
    assert far > near
    lanes = machine("l40sx8").gpu.pcie
    assert lanes is not None
    bridge = hand_over(machine("l40sx8"), ceilings(), 1, 1e9)
    assert pytest.approx(ceilings().reduce_seconds + 1e9 / (lanes.bytes_per_second.value * 0.5)) == bridge


def test_an_exchange_sends_once() -> None:
    """What a rank sends to the others goes over its link once."""
    assert pytest.approx(3e-6 + 1e9 / RATE) == Links(8, 3e-6, 0.0, 5e-6, 0.0, 1 / RATE).exchange(1e9)
