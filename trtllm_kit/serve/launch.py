"""The command that starts tritonserver, as data: a pure function of repository, serving settings and installation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.errors import UsageError
from trtllm_kit.spec.profile import Serve

EXIT_TIMEOUT_SECONDS = 30
"""How long the server lets running requests finish after it was told to stop."""
LAUNCHER = "trtllm-llmapi-launch"
"""Comes with TensorRT-LLM: serves on rank 0 and works on the others; without it the server cannot spawn ranks."""
MPIRUN = ("mpirun", "--allow-run-as-root", "--bind-to", "none")
"""What starts several ranks: the launcher has as many workers as MPI has ranks, and alone it has one."""
STUB = "triton_python_backend_stub"
"""Program that runs a Python model; every model instance has one."""
PYTHON_LIBRARY = "libtriton_python.so"
ENGINE_BACKEND = "tensorrtllm"
"""Triton's C++ backend for engines; no installation without a GPU has it."""
_NOTHING: Mapping[str, Path] = {}
_ASIDE = "repository"
"""The link in the workspace through which a repository with other letters than ASCII is reached."""
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what a server binds is not what a client asks
_HARMFUL = ("PYTHONHOME",)
"""Variables that would give the stub's Python another standard library than its own."""


@dataclass(frozen=True)
class Installation:
    """A tritonserver on this machine."""

    binary: Path
    links: Mapping[str, Path]
    """Files of the Python backend by the name they must have in its folder; empty when the server finds its own."""
    python_folder: Path | None
    """Folder whose ``python3`` the stub runs as: it goes first on PATH. None keeps PATH as it is."""
    library_folders: tuple[Path, ...] = ()
    """Where the stub finds its libpython, when the system's own is not it."""
    launcher: tuple[str, ...] = ()
    """Words before the server's own that start the ranks of the LLM API: its launcher, of several under mpirun."""


@dataclass(frozen=True)
class Urls:
    """Where a client reaches the server."""

    http: str
    grpc: str
    """``host:port``, as gRPC clients want it."""
    metrics: str


@dataclass(frozen=True)
class ServerCommand:
    """Everything that is needed to start one server."""

    repository: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    host: str
    ports: Mapping[str, int]
    urls: Urls
    workspace: Path
    """Temporary folder of this run; the backend folder is made in it."""
    links: Mapping[str, Path]
    """Symbolic links to make in the workspace, by relative path."""
    shm_prefix: str
    """What the names of this server's shared memory begin with, unlike any other server's."""


def server_command(
    repository: Path,
    serve: Serve,
    environment: Mapping[str, str],
    installation: Installation,
    workspace: Path,
    stand_in: Mapping[str, Path] = _NOTHING,
) -> ServerCommand:
    """Return the command for one server; ``workspace`` must be named uniquely, the shared memory is named after it.

    A repository whose path is not ASCII is reached through a link in the workspace: the Python of Triton's stub knows
    no other encoding, whatever the locale.
    ``stand_in`` are the files, by name, of what stands in for the backend of engines.
    ``environment`` is what the server inherits; the host must be an IP address. Raises ``UsageError`` when two ports
    are the same.
    """
    ports = {"http": serve.http_port, "grpc": serve.grpc_port, "metrics": serve.metrics_port}
    _check_distinct(ports)
    shm_prefix = f"{workspace.name}_"
    seen, aside = (repository, {}) if str(repository).isascii() else (workspace / _ASIDE, {_ASIDE: repository})
    own = {f"backends/python/{name}": target for name, target in installation.links.items()}
    return ServerCommand(
        repository=repository,
        argv=(
            *installation.launcher,
            str(installation.binary),
            f"--model-repository={seen}",
            *([f"--backend-directory={workspace / 'backends'}"] if installation.links else []),
            *_flags(serve.host, ports),
            *(backend_config(shm_prefix, name) for name in ("python", *([ENGINE_BACKEND] if stand_in else []))),
        ),
        environment=_environment(environment, installation) | {RUN_MARK: shm_prefix},
        host=serve.host,
        ports=ports,
        urls=_urls(serve.host, ports),
        workspace=workspace,
        links=aside | own | _stand_in_links(installation, stand_in),
        shm_prefix=shm_prefix,
    )


def _flags(host: str, ports: Mapping[str, int]) -> Iterator[str]:
    """Yield where the server listens, how it ends and what it measures."""
    yield from (f"--{name}-address={bound_address(name, host)}" for name in ports)
    yield from (f"--{name}-port={port}" for name, port in ports.items())
    yield f"--exit-timeout-secs={EXIT_TIMEOUT_SECONDS}"
    yield "--disable-auto-complete-config"
    yield "--metrics-config=histogram_latencies=true"


def _stand_in_links(installation: Installation, files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the links of a backend that is a Python model: Triton's Python backend by its name, and its files."""
    if not files:
        return {}
    renamed = {
        (f"libtriton_{ENGINE_BACKEND}.so" if name == PYTHON_LIBRARY else name): target
        for name, target in installation.links.items()
    }
    return {f"backends/{ENGINE_BACKEND}/{name}": target for name, target in {**renamed, **files}.items()}


RUN_MARK = "TRTKIT_RUN"
"""Variable by which every process of a run is known, whoever started it: ranks and workers inherit it."""


def backend_config(shm_prefix: str, backend: str = "python") -> str:
    """Return the flag that names the shared memory of a backend's stubs; it also marks the server's processes."""
    return f"--backend-config={backend},shm-region-prefix-name={shm_prefix}"


def _check_distinct(ports: Mapping[str, int]) -> None:
    by_number: dict[int, str] = {}
    for name, number in ports.items():
        other = by_number.setdefault(number, name)
        if other != name:
            raise UsageError(
                f"serve.{name}_port is {number}",
                why=f"serve.{other}_port is {number} too, and a port can be bound once",
                hint=f"give serve.{name}_port another number in the profile",
            )


def _environment(inherited: Mapping[str, str], installation: Installation) -> dict[str, str]:
    environment = {name: value for name, value in inherited.items() if name not in _HARMFUL}
    if installation.python_folder is not None:
        _prepend(environment, "PATH", (installation.python_folder,), default="/usr/bin:/bin")
    _prepend(environment, "LD_LIBRARY_PATH", installation.library_folders, default="")
    return environment


def _prepend(environment: dict[str, str], name: str, folders: tuple[Path, ...], *, default: str) -> None:
    if folders:
        rest = environment.get(name, default)
        environment[name] = ":".join([*map(str, folders), *([rest] if rest else [])])


def bound_address(name: str, address: str) -> str:
    """Spell the address that an endpoint (``http``, ``grpc``, ``metrics``) is bound to as Triton's flag wants it.

    Each of Triton's two web servers has its own way with IPv6.
    """
    if ":" not in address:
        return address
    return f"[{address}]" if name == "grpc" else f"ipv6:{address}"


def _urls(host: str, ports: Mapping[str, int]) -> Urls:
    reached = _ANY_ADDRESS.get(host, host)
    name = f"[{reached}]" if ":" in reached else reached
    return Urls(
        http=f"http://{name}:{ports['http']}",
        grpc=f"{name}:{ports['grpc']}",
        metrics=f"http://{name}:{ports['metrics']}/metrics",
    )
