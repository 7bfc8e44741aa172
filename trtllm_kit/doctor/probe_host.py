"""Reads what is beside the GPUs: ``/proc``, ``/sys``, limits, disks, the container, daemons, ports."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trtllm_kit.doctor.facts import Disk, Host, RdmaPort, Unread

DAEMONS = ("nv-fabricmanager", "nvidia-imex", "nvidia-persistenced")
_LISTENS = "0A"
_COMM_BYTES = 15
"""How much of a name the kernel keeps in ``comm``."""
_MARKS = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}


def read_host(folders: Sequence[Path], ports: Mapping[int, str], root: Path = Path("/")) -> tuple[Host, list[Unread]]:
    """Read it all; ``ports`` are those that are wanted, with what for, and ``root`` is where ``/proc`` is."""
    unread: list[Unread] = []
    memory = _memory(root)
    if memory[0] is None:
        unread.append(Unread("the host's memory", "/proc/meminfo does not tell it"))
    shm = _space(root / "dev/shm")
    if shm is None:
        unread.append(Unread("shared memory", "there is no /dev/shm"))
    taken = _taken(root, ports)
    if taken is None:
        unread.append(Unread("the ports in use", "/proc/net/tcp cannot be read"))
    daemons = _daemons(root)
    if daemons is None:
        unread.append(Unread("daemons", "/proc shows no process"))
    host = Host(
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory[0],
        memory_available_bytes=memory[1],
        shm_bytes=shm[0] if shm else None,
        shm_free_bytes=shm[1] if shm else None,
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        numa_nodes=_count(root / "sys/devices/system/node", "node") or None,
        container=_container(root),
        daemons=daemons,
        nvswitches=_count(root / "proc/driver/nvidia-nvswitch/devices", ""),
        rdma=tuple(_rdma(root / "sys/class/infiniband")),
        imex_channels=_count(root / "dev/nvidia-caps-imex-channels", "channel"),
        disks=tuple(_disks(folders)),
        taken_ports=taken or {},
    )
    return host, unread


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("ascii", "replace")
    return ""


def _memory(root: Path) -> tuple[int | None, int | None]:
    """Return total and available bytes, no more than a container's own limit."""
    told = dict(line.split(":", 1) for line in _text(root / "proc/meminfo").splitlines() if ":" in line)
    kib = {
        name: int(value.split()[0]) for name, value in told.items() if value.split()[:1] and value.split()[0].isdigit()
    }
    total, free = kib.get("MemTotal"), kib.get("MemAvailable")
    limit = _text(root / "sys/fs/cgroup/memory.max").strip()
    most = int(limit) if limit.isdigit() else None
    used = _text(root / "sys/fs/cgroup/memory.current").strip()
    room = most - int(used) if most is not None and used.isdigit() else None
    return _least(total and total << 10, most), _least(free and free << 10, room)


def _least(one: int | None, other: int | None) -> int | None:
    told = [value for value in (one, other) if value is not None]
    return min(told) if told else None


def _space(folder: Path) -> tuple[int, int] | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.total, usage.free


def _disks(folders: Sequence[Path]) -> Iterator[Disk]:
    for folder in folders:
        space = _space(folder)
        if space is not None:
            yield Disk(str(folder), *space)


def _limit(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def _count(folder: Path, prefix: str) -> int:
    try:
        return sum(name.startswith(prefix) and name != "cpumap" for name in os.listdir(folder))  # noqa: PTH208
    except OSError:
        return 0


def _rdma(folder: Path) -> Iterator[RdmaPort]:
    """Yield the ports of RDMA devices: the kernel writes ``4: ACTIVE`` into a port's ``state``."""
    for port in sorted(folder.glob("*/ports/[0-9]*")):
        told = {name: _text(port / name).strip() for name in ("state", "rate", "link_layer")}
        active = told["state"].endswith("ACTIVE")
        yield RdmaPort(port.parents[1].name, int(port.name), active, told["rate"], told["link_layer"])


def _container(root: Path) -> str:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    marked = next((name for mark, name in _MARKS.items() if (root / mark.lstrip("/")).exists()), "")
    if marked:
        return marked
    group = _text(root / "proc/1/cgroup")
    return next((word for word in ("docker", "kubepods", "libpod", "lxc", "containerd") if word in group), "")


def _daemons(root: Path) -> dict[str, bool] | None:
    """Say which of them run, of the processes that are seen from here."""
    names = {_text(path / "comm").strip() for path in (root / "proc").glob("[0-9]*")}
    if not names - {""}:
        return None
    return {name: name[:_COMM_BYTES] in names for name in DAEMONS}


def _taken(root: Path, wanted: Mapping[int, str]) -> dict[int, str] | None:
    """Return those ports somebody listens on, over IPv4 or IPv6."""
    tables = [_text(root / "proc/net" / name) for name in ("tcp", "tcp6")]
    if not any(tables):
        return None
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    listened = {int(line[1].rsplit(":", 1)[1], 16) for line in lines if len(line) > 3 and line[3] == _LISTENS}
    return {port: what for port, what in wanted.items() if port in listened}
