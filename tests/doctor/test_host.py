"""What is beside the GPUs, read from a folder that looks like a machine's root."""

from __future__ import annotations

from pathlib import Path

from trtllm_kit.doctor.ask import Answer
from trtllm_kit.doctor.probe_host import read_host
from trtllm_kit.doctor.probe_software import read_software


def _root(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


TCP = (
    "  sl  local_address rem_address   st\n   0: 0100007F:1F40 00000000:0000 0A\n   1: 0100007F:1F42 0100007F:1F40 01\n"
)


def test_memory_daemons_switches_and_ports(tmp_path: Path) -> None:
    """Each comes of its own file: a client's port is not listened on, and the kernel cuts long names."""
    root = _root(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:  1048576 kB\nMemAvailable:  524288 kB\nHugePages_Total: 0\n",
            "proc/7/comm": "nv-fabricmanage\n",
            "proc/net/tcp": TCP,
            "proc/driver/nvidia-nvswitch/devices/0000:01:00.0": "",
            "dev/nvidia-caps-imex-channels/channel0": "",
            "dev/shm/x": "",
        },
    )
    host, unread = read_host([tmp_path], {8000: "HTTP", 8002: "metrics"}, root)
    assert [] == unread
    assert (1 << 30, 1 << 29) == (host.memory_bytes, host.memory_available_bytes)
    assert {"nv-fabricmanager": True, "nvidia-imex": False, "nvidia-persistenced": False} == host.daemons
    assert (1, 1, {8000: "HTTP"}) == (host.nvswitches, host.imex_channels, host.taken_ports)
    assert str(tmp_path) == host.disks[0].path


def test_a_containers_limit_is_its_memory(tmp_path: Path) -> None:
    """The control group's limit holds where it is below the machine's memory."""
    root = _root(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:  1048576 kB\nMemAvailable:  524288 kB\n",
            "sys/fs/cgroup/memory.max": "268435456\n",
            "sys/fs/cgroup/memory.current": "67108864\n",
            "run/.containerenv": "",
        },
    )
    host, _ = read_host([], {}, root)
    assert (268435456, 201326592, "podman") == (host.memory_bytes, host.memory_available_bytes, host.container)


def test_an_empty_root_leaves_all_unknown(tmp_path: Path) -> None:
    """No file is no value: each is named as unread, and none is zero."""
    host, unread = read_host([tmp_path / "nowhere"], {8000: "HTTP"}, tmp_path)
    assert ["the host's memory", "shared memory", "the ports in use", "daemons"] == [one.what for one in unread]
    assert (None, None, None, (), {}) == (
        host.memory_bytes, host.shm_bytes, host.daemons, host.disks, host.taken_ports,
    )  # fmt: skip


def test_programs_and_environments_are_found(tmp_path: Path) -> None:
    """A program's version is read of what it prints; one that does not answer is there with an unknown version."""

    def which(name: str) -> str | None:
        return {"mpirun": "/bin/mpirun", "docker": "/bin/docker"}.get(name)

    def run(*argv: str, **_: object) -> Answer:
        if argv[0] == "/bin/mpirun":
            return Answer("mpirun (Open MPI) 4.1.6\n")
        if argv[0] == "/bin/docker":
            return Answer(why="docker did not answer in 20 s")
        return Answer('{"tensorrt-llm": "1.2.1"}' if argv[0] == "/env/python" else "{}")

    programs, environments, unread = read_software(("/env/python",), run, which)
    assert [("mpirun", "4.1.6"), ("docker", None)] == [(one.name, one.version) for one in programs]
    assert [("/env/python", {"tensorrt-llm": "1.2.1"})] == [(one.python, dict(one.versions)) for one in environments]
    assert ["the version of docker"] == [one.what for one in unread]


def test_rdma_ports_are_what_the_kernel_shows(tmp_path: Path) -> None:
    """Each port of each device, active or not, with its rate and kind of link; without devices there are none."""
    ports = "sys/class/infiniband/mlx5_0/ports"
    files = {f"{ports}/1/state": "4: ACTIVE\n", f"{ports}/1/rate": "400 Gb/sec (4X NDR)\n"}
    files |= {f"{ports}/1/link_layer": "InfiniBand\n", f"{ports}/2/state": "1: DOWN\n"}
    host, _ = read_host([], {}, _root(tmp_path, files))
    up, down = host.rdma
    assert ("mlx5_0/1", True, "400 Gb/sec (4X NDR)", "InfiniBand") == (up.name, up.active, up.rate, up.link)
    assert ("mlx5_0/2", False) == (down.name, down.active)
    assert () == read_host([], {}, _root(tmp_path / "other", {"proc/x": ""}))[0].rdma
