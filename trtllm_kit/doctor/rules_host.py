"""Rules about what is beside the GPUs: memory, shared memory, limits, disks, ports. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.doctor.facts import Machine
from trtllm_kit.doctor.rule import INFO, WARNING, Told
from trtllm_kit.doctor.topology import sockets
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.units import format_bytes

SHM_BYTES = 1 << 30
"""Docker gives 64 MiB; ranks and Triton's Python models share through it."""
OPEN_FILES = 4096
LOCKED_BYTES = 1 << 30
DISK_BYTES = 20 << 30
CORES_A_GPU = 4
"""A rank's own threads, its server's and its tokenizer's."""


def host_memory(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Compare with a GPU's memory: weights pass through the host's while they are loaded."""
    total, most = machine.host.memory_bytes, max((card.memory_bytes or 0 for card in machine.cards), default=0)
    if total is not None and 0 < total < most:
        yield (
            INFO,
            "the host has less memory than one GPU",
            f"{format_bytes(total)}, GPU {format_bytes(most)}",
            ("trtkit plan says what a conversion and a build need of it"),
        )


def shared_memory(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Want room under /dev/shm, where ranks and Python models share memory."""
    total, free = machine.host.shm_bytes, machine.host.shm_free_bytes
    if total is not None and total < SHM_BYTES:
        yield (
            WARNING,
            "shared memory (/dev/shm) is too small",
            f"{format_bytes(total)}, {format_bytes(SHM_BYTES)} wanted",
            ("docker run --shm-size=2g, or --ipc=host"),
        )
    elif free is not None and free < SHM_BYTES // 4:
        yield (
            WARNING,
            "shared memory (/dev/shm) is nearly full",
            f"{format_bytes(free)} free",
            "ls -l /dev/shm shows who left what",
        )


def limits(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Judge limits: each stream is an open file, and NCCL and RDMA lock memory."""
    files, locked = machine.host.open_files, machine.host.locked_bytes
    if files is not None and 0 <= files < OPEN_FILES:
        yield WARNING, "few files may be open at once", f"{files}, {OPEN_FILES} wanted", "ulimit -n 65536"
    if locked is not None and 0 <= locked < LOCKED_BYTES and len(machine.cards) > 1:
        yield (
            WARNING,
            "little memory may be locked, and several GPUs share buffers",
            (f"{format_bytes(locked)}, {format_bytes(LOCKED_BYTES)} wanted"),
            "ulimit -l unlimited, docker run --ulimit memlock=-1",
        )


def cores(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Count cores: a rank has threads of its own beside those of the server."""
    found, wanted = machine.host.cores, CORES_A_GPU * len(machine.cards)
    if found is not None and found < wanted:
        yield WARNING, "few CPU cores for the GPUs", f"{found} cores, {wanted} wanted", "allow this process more cores"


def numa(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Tell of several sockets: a rank should run near its GPU."""
    topology = machine.topology
    if topology is not None and sockets(topology) > 1:
        told = ", ".join(f"GPU {gpu}: {topology.numa[gpu]}" for gpu in topology.gpus if gpu in topology.numa)
        yield (
            INFO,
            f"the GPUs are near to {sockets(topology)} NUMA nodes",
            told,
            ("bind ranks to the cores of their GPU: mpirun --bind-to numa, or numactl"),
        )


def disks(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Want space: checkpoints and engines are tens of gigabytes."""
    for disk in machine.host.disks:
        if disk.free_bytes < DISK_BYTES:
            yield (
                WARNING,
                f"little space under {disk.path}",
                (f"{format_bytes(disk.free_bytes)} free of {format_bytes(disk.total_bytes)}"),
                "trtkit engines prune, or choose an output on another disk",
            )


def ports(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Name ports where somebody listens already."""
    for port, what in machine.host.taken_ports.items():
        yield (
            WARNING if wanted.profile else INFO,
            f"port {port} ({what}) is in use",
            "listened on: yes",
            (f"ss -ltnp 'sport = :{port}' shows by whom; `trtkit stop` ends a server of trtkit's"),
        )
