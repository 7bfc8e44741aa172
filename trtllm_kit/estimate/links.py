"""Collectives over the links of a machine: latency by ranks, and bytes over the bandwidth that is reached."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from trtllm_kit.plan.parallelism import fast_reach
from trtllm_kit.spec.ceilings import Ceilings
from trtllm_kit.spec.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Links:
    """What a number of ranks exchange bytes over.

    An all-reduce goes in one shot, where every rank reads what all others have, or in two phases, which take longer to
    begin and send less; the quicker one counts. Ranks beyond the NVLink domain, or the node, reduce in two levels.
    """

    ranks: int
    one_shot: float
    """Seconds of an all-reduce of nothing in one shot; infinite between nodes."""
    one_shot_byte: float
    """Seconds a byte of the payload."""
    phases: float
    """Seconds of an all-reduce of nothing in two phases."""
    phases_byte: float
    """Seconds a byte of the payload."""
    send_byte: float
    """Seconds a byte that a rank sends to others: gathers, scatters and exchanges."""

    def all_reduce(self, payload: float) -> float:
        """Return the seconds of an all-reduce of that many bytes."""
        if self.ranks == 1:
            return 0.0
        return min(self.one_shot + payload * self.one_shot_byte, self.phases + payload * self.phases_byte)

    def exchange(self, sent: float) -> float:
        """Return the seconds in which every rank sends that many bytes to the others, and gets as many."""
        return 0.0 if self.ranks == 1 else min(self.one_shot, self.phases) + sent * self.send_byte


def links_of(hardware: Hardware, ceilings: Ceilings, ranks: int) -> Links:
    """Return the links of a group of neighbouring ranks."""
    inside = min(ranks, fast_reach(hardware))
    nodes = ceil(ranks / inside)
    rate, switched = _inside(hardware, ceilings, inside)
    ring = 2 * (inside - 1) / inside
    volume = min(ring, (inside + 1) / inside) if switched else ring
    phases = ceilings.ring_seconds * log2(inside)
    if switched and nodes == 1:
        volume, phases = volume * (1 - ceilings.reduce_hidden), phases * (1 - ceilings.reduce_hidden)
    if nodes == 1:
        one_shot = ceilings.reduce_seconds + ceilings.reduce_rank_seconds * (log2(inside) - 1)
        return Links(ranks, one_shot, (inside - 1) / rate, phases, volume / rate, 1 / rate)
    each = _network(hardware) * ceilings.link_share
    between = 2 * (nodes - 1) / nodes / inside / each
    phases += ceilings.network_seconds * log2(nodes)
    send = (nodes - 1) / nodes / each + 1 / nodes / rate
    return Links(ranks, float("inf"), 0.0, phases, volume / rate + between, send)


def _inside(hardware: Hardware, ceilings: Ceilings, ranks: int) -> tuple[float, bool]:
    """Return the bytes a second between ranks of a domain or node, and whether switches add up and copy for them.

    Such switches take the payload once, and (n + 1) / n of it with what they copy.
    """
    link = hardware.gpu.nvlink_bytes_per_second
    if link is not None and hardware.nvlink_domain >= ranks:
        return link.value * ceilings.link_share, hardware.nvlink_multicast
    lane = hardware.gpu.pcie.bytes_per_second.value if hardware.gpu.pcie else _NO_LINK
    return lane * ceilings.link_share / (max(2, ranks) / 2) ** ceilings.bridge_crowding, False


_NO_LINK = 16e9
"""Bytes a second of a link that the hardware profile does not state."""


def _network(hardware: Hardware) -> float:
    """Return the bytes a second that one GPU of a node sends to other nodes."""
    stated = hardware.network_bytes_per_second
    return (stated.value / hardware.gpus_per_node) if stated else _NO_LINK


@dataclass(frozen=True, slots=True)
class Way:
    """How one GPU of a server reaches a GPU of another server."""

    over: str
    """``NVLink``, ``PCIe`` or ``network``."""
    bytes_per_second: float
    latency_seconds: float


def between_servers(hardware: Hardware, ceilings: Ceilings, gpus: int) -> Way:
    """Return how servers of that many GPUs in all reach each other: NVLink where all are of one domain.

    Within a node without such a domain it is PCIe, which they share; beyond it the network.
    """
    if gpus > fast_reach(hardware):
        return Way("network", _network(hardware) * ceilings.link_share, ceilings.network_seconds)
    linked = hardware.gpu.nvlink_bytes_per_second is not None and hardware.nvlink_domain >= gpus
    return Way("NVLink" if linked else "PCIe", _inside(hardware, ceilings, gpus)[0], ceilings.reduce_seconds)


def hand_over(hardware: Hardware, ceilings: Ceilings, tensor: int, payload: float) -> float:
    """Return the seconds in which a pipeline stage of ``tensor`` ranks hands its result to the next one."""
    near = tensor < fast_reach(hardware) or hardware.nodes == 1
    rate = _inside(hardware, ceilings, 2)[0] if near else _network(hardware) * ceilings.link_share
    return ceilings.reduce_seconds + payload / rate
