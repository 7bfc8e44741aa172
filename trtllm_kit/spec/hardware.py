"""Hardware profiles: typed facts of a machine, every figure with the place it was read.

``load_hardware`` reads the shipped catalogue ``hardware.yaml``; nothing here probes a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from trtllm_kit.frozen import Frozen


class Figure(Frozen):
    """One number in base units and where it was read."""

    value: float
    source: str


class Reached(Frozen):
    """What was measured of one constant of a card: its value, the range it can lie in, and how it was measured."""

    value: float
    low: float
    high: float
    source: str


class Pcie(Frozen):
    """The PCIe link of one card to its host: what its peers are reached over where there is no NVLink."""

    generation: int
    lanes: int
    bytes_per_second: Figure
    """One direction."""


class Gpu(Frozen):
    """One GPU (or the CPU that stands in for it in a rehearsal)."""

    name: str
    kind: Literal["gpu", "cpu"] = "gpu"
    architecture: str
    """``ampere``, ``ada``, ``hopper``, ``blackwell`` or ``cpu``."""
    compute_capability: int
    """Major times ten plus minor, e.g. 90; 0 for a CPU."""
    memory_bytes: Figure
    """Memory a process can see, bytes."""
    memory_bandwidth: Figure
    """Bytes a second."""
    dense_flops: dict[str, Figure]
    """Peak dense (not 2:4-sparse) operations a second, by number format."""
    sparse_flops: Mapping[str, Figure] = MappingProxyType({})
    """Peak operations a second with 2:4 sparsity: what data sheets print largest; no plan is made from it."""
    power_limit_watts: Figure | None = None
    clock_hz: Figure | None = None
    """The highest clock of its multiprocessors, hertz; under load power sets a lower one. None when it was not read."""
    nvlink_bytes_per_second: Figure | None = None
    """NVLink bandwidth of one GPU in one direction, bytes a second; None when it has no NVLink."""
    pcie: Pcie | None = None
    """None when it was not read; it matters where there is no NVLink."""
    ceilings: Mapping[str, Reached] = MappingProxyType({})
    """Constants of ``spec.ceilings`` that were measured on this card; they come before its architecture's."""

    unsaid: ClassVar[frozenset[str]] = frozenset({"ceilings"})


class Hardware(Frozen):
    """A machine, or a set of them that one deployment spans."""

    name: str
    summary: str
    gpu: Gpu
    gpus_per_node: int
    nodes: int = 1
    nvlink_domain: int
    """GPUs that reach each other over NVLink; 1 when there is none."""
    nvlink_multicast: bool = False
    """Whether its NVLink switches add up and copy for the GPUs (NVLS): third generation of NVSwitch and later."""
    power_limit_watts: Figure | None = None
    """The limit these cards run at, when it differs from the card's own."""
    clock_hz: Figure | None = None
    """The clock the cards are said to keep under that limit, hertz."""
    network_bytes_per_second: Figure | None = None
    """What one node sends to others, all its adapters together, bytes a second."""
    host_memory_bytes: Figure | None = None
    """Memory of the CPUs of one node, bytes."""

    @property
    def gpus(self) -> int:
        """All GPUs of the machine or machines."""
        return self.gpus_per_node * self.nodes

    @property
    def is_rehearsal(self) -> bool:
        """Whether the work runs on a CPU that stands in for a GPU."""
        return self.gpu.kind == "cpu"
