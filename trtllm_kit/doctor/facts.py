"""What was read of one machine: plain facts, None where nothing told. Pure.

Bytes, watts, MHz and degrees Celsius; each fact that could not be read is named in ``Machine.unread`` with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from trtllm_kit.doctor.topology import Topology
from trtllm_kit.light import dataclass


@dataclass(frozen=True)
class Card:
    """One GPU, as its driver tells of it."""

    index: int
    name: str
    uuid: str = ""
    bus: str = ""
    """PCI address."""
    compute_capability: int | None = None
    """Major times ten plus minor."""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    power_limit_watts: float | None = None
    """The limit that holds now."""
    power_default_watts: float | None = None
    """The limit that the card comes with."""
    clock_mhz: float | None = None
    clock_most_mhz: float | None = None
    """Of its multiprocessors."""
    clock_reasons: int | None = None
    """NVML's bits for why the clock is lower than it could be."""
    temperature: float | None = None
    persistence: bool | None = None
    mig: bool | None = None
    ecc: bool | None = None
    """None also where the card has none."""
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    pcie_generation: int | None = None
    pcie_generation_most: int | None = None
    pcie_lanes: int | None = None
    pcie_lanes_most: int | None = None
    fabric: str | None = None
    """State of its registration with the NVLink fabric: ``completed``, ``in progress``, ``not started``, or None."""
    fabric_status: str | None = None
    """What came of it: ``success``, or an error's words."""
    links_up: int | None = None
    links_down: int | None = None
    link_errors: Mapping[str, int] = field(default_factory=dict)
    """``replay``, ``recovery``, ``crc_flit``: all its NVLinks together, since the driver was loaded."""
    multicast: bool | None = None
    """Whether the driver offers NVLink multicast (NVLS) on it."""


@dataclass(frozen=True)
class Disk:
    """One file system."""

    path: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class RdmaPort:
    """A port of an RDMA device, as the kernel tells of it."""

    device: str
    port: int
    active: bool
    rate: str = ""
    """In the kernel's words, e.g. ``400 Gb/sec (4X NDR)``."""
    link: str = ""
    """``InfiniBand`` or ``Ethernet``."""

    @property
    def name(self) -> str:
        """Device and port."""
        return f"{self.device}/{self.port}"


@dataclass(frozen=True)
class SwitchErrors:
    """What the kernel's log says of one NVSwitch since the machine was started."""

    switch: str
    """PCI address."""
    fatal: int
    others: int
    last: str
    """The last message: its number, and the driver's words."""


@dataclass(frozen=True)
class Host:
    """What is beside the GPUs."""

    cores: int | None = None
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    open_files: int | None = None
    """Soft limit; -1 for none."""
    locked_bytes: int | None = None
    """Memory a process may lock; -1 for all."""
    numa_nodes: int | None = None
    container: str | None = None
    """What this runs in (``docker``, ``kubernetes``...); an empty text for no container."""
    daemons: Mapping[str, bool] | None = None
    """``nv-fabricmanager``, ``nvidia-imex``, ``nvidia-persistenced``: whether it runs, as far as this process sees."""
    nvswitches: int | None = None
    """Switches that the driver shows."""
    switch_errors: Sequence[SwitchErrors] = ()
    """Of the switches whose errors the kernel's log tells."""
    rdma: Sequence[RdmaPort] = ()
    imex_channels: int | None = None
    disks: Sequence[Disk] = ()
    taken_ports: Mapping[int, str] = field(default_factory=dict)
    """Ports that somebody listens on, of those that were asked for."""


@dataclass(frozen=True)
class Program:
    """A program that was found."""

    name: str
    path: str
    version: str | None = None
    """None where it did not tell."""


@dataclass(frozen=True)
class Environment:
    """A Python environment."""

    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the packages that were looked for; one that is not there is not named."""


@dataclass(frozen=True)
class Unread:
    """What is unknown, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Machine:
    """All that was read."""

    cards: Sequence[Card] = ()
    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA that the driver takes."""
    told_by: str = ""
    """Who told of the GPUs."""
    topology: Topology | None = None
    peers: Mapping[tuple[int, int], str] | None = None
    """Of each pair of GPUs, whether one reads the other's memory: ``OK`` or the driver's reason."""
    host: Host = field(default_factory=Host)
    programs: Sequence[Program] = ()
    environments: Sequence[Environment] = ()
    unread: Sequence[Unread] = ()

    def program(self, name: str) -> Program | None:
        """Return a program that was found."""
        return next((one for one in self.programs if one.name == name), None)
