"""Hardware profiles: typed facts of a machine, every figure with the place it was read.

``load_hardware`` reads the shipped catalogue ``hardware.yaml``; nothing here probes a machine.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Frozen):
    """One number in base units and where it was read."""

    value: float
    source: str


class Gpu(_Frozen):
    """One GPU (or the CPU that stands in for it in a rehearsal)."""

    name: str
    kind: Literal["gpu", "cpu"] = "gpu"
    architecture: str
    """``hopper``, ``blackwell`` ... or ``cpu``."""
    compute_capability: int
    """Major times ten plus minor, e.g. 90; 0 for a CPU."""
    memory_bytes: Figure
    """Memory a process can see, bytes."""
    memory_bandwidth: Figure
    """Bytes a second."""
    dense_flops: dict[str, Figure]
    """Peak dense (not 2:4-sparse) operations a second, by number format."""
    sparse_flops: dict[str, Figure] = {}
    """Peak operations a second with 2:4 sparsity: what data sheets print largest; no plan is made from it."""
    power_limit_watts: Figure | None = None
    nvlink_bytes_per_second: Figure | None = None
    """NVLink bandwidth of one GPU in one direction, bytes a second; None when it has no NVLink."""


class Hardware(_Frozen):
    """A machine, or a set of them that one deployment spans."""

    name: str
    summary: str
    gpu: Gpu
    gpus_per_node: int
    nodes: int = 1
    nvlink_domain: int
    """GPUs that reach each other over NVLink; 1 when there is none."""
    power_limit_watts: Figure | None = None
    """The limit these cards run at, when it differs from the card's own."""
    host_memory_bytes: Figure | None = None

    @property
    def gpus(self) -> int:
        """All GPUs of the machine or machines."""
        return self.gpus_per_node * self.nodes

    @property
    def is_rehearsal(self) -> bool:
        """Whether the work runs on a CPU that stands in for a GPU."""
        return self.gpu.kind == "cpu"
