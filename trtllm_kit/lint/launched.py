"""Reads how a command starts a server: ranks, hosts, shared memory, prefixes (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trtllm_kit.errors import UsageError
from trtllm_kit.lint.shell import STOPS, Started
from trtllm_kit.units import parse_bytes

TRITON, LAUNCHER, SERVE = "tritonserver", "launch_triton_server.py", "trtllm-serve"
_PROGRAMS = (TRITON, LAUNCHER, SERVE)
_MPI = ("mpirun", "mpiexec")
_RANKS = ("-n", "-np", "--np", "-c", "--n")
_HOSTS = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
_CONTAINERS = frozenset({"docker", "podman"})
_MANAGES = STOPS | {"kubectl", "helm", "systemctl", "service", "journalctl", "compose", "docker-compose"}
"""Programs that call a server by the name that somebody gave it."""
_NAMED = frozenset({"--name", "--hostname", "--network", "--net", "-h", "exec", "-it", "-d", "-i", "-t"})
"""Words of containers behind which a name stands."""
_ORCHESTRATOR = "TRTLLM_ORCHESTRATOR"
_EACH_RANK = ("srun", "trtllm-llmapi-launch")
"""What starts a process for each rank, where the ranks are known to somebody else."""
_PREFIX = re.compile(r"python,shm-region-prefix-name=(.+)")
SHM = "/dev/shm"  # noqa: S108  the place itself, no file in it
CONTAINER_SHM = 64 << 20
"""Bytes of /dev/shm in a container that nobody gave more."""
_DOCKER_UNIT = {"b": "B", "k": "KiB", "m": "MiB", "g": "GiB", "": "B"}


@dataclass(frozen=True)
class Launched:
    """One start of a server."""

    line: int
    triton: bool
    """Whether MPI ranks are Triton's, one for each rank of an engine."""
    ranks: int | None = 1
    """None where the script does not say how many."""
    names_hosts: bool = False
    orchestrator: bool = False
    gpus_per_node: int | None = None
    shm_bytes: int | None = None
    """None outside of a container, and where the container has the host's."""
    prefixes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    background: bool = False
    arms: tuple[tuple[int, int], ...] = ()
    """The branches that the start stands in, each with the number of its arm."""


def launched(command: Started) -> Iterator[Launched]:
    """Yield the server that a command starts; nothing for another command.

    Ranks that ``mpirun`` is told of with ``:`` between them are those of one server.
    """
    words = command.words
    names = [_name(word) for word in words]
    at = _program(words, names)
    if at is None:
        return
    program, before, after = names[at], words[:at], words[at + 1 :]
    ranks = _mpi_ranks(words, names)
    yield Launched(
        line=command.line,
        triton=program != SERVE and not any(word in _EACH_RANK for word in before),
        ranks=_world_size(after) if program == LAUNCHER else ranks,
        names_hosts=any(word.partition("=")[0] in _HOSTS or word in _EACH_RANK for word in before),
        orchestrator="--multi-model" in after or _orchestrates(command, before),
        gpus_per_node=_number(_option(after, "--gpus_per_node")) if program == SERVE else None,
        shm_bytes=_shared_memory(before, names),
        prefixes=tuple(_prefixes(command)),
        variables=command.variables,
        folder=command.folder,
        background=command.background,
        arms=command.arms,
    )


def _name(word: str) -> str:
    """Return the last part of a path; that of a folder is no program's."""
    name = Path(word).name
    return "" if name == TRITON and word not in (TRITON, f"./{TRITON}") and "/bin/" not in word else name


def _program(words: tuple[str, ...], names: list[str]) -> int | None:
    """Return the place of the server that a command starts; None for one that starts none, or only speaks of it."""
    for at, name in enumerate(names):
        if name in _MANAGES or names[:2] in (["command", "-v"], ["command", "-V"]):
            return None
        contained = bool(_CONTAINERS & {*names[:at]})
        if name in _PROGRAMS and not (contained and words[at - 1] in _NAMED):
            return at if not contained or {"run", "exec"} & {*words[:at]} else None
    return None


def _orchestrates(command: Started, before: tuple[str, ...]) -> bool:
    """Whether Triton starts the other ranks itself; so taken where a variable says it whose value nobody knows."""
    pairs = (word.removeprefix("--env=").partition("=") for word in before)
    given = {name: value for name, equals, value in pairs if equals}
    value = {**command.variables, **given}.get(_ORCHESTRATOR, "")
    return value == "1" or "$" in value


def _prefixes(command: Started) -> Iterator[str]:
    """Yield the prefixes that a server gives its shared memory, as far as the script says them."""
    words = command.words
    for number, word in enumerate(words):
        match = _PREFIX.fullmatch(word.partition("=")[2] if word.startswith("--backend-config=") else word)
        follows = number > 0 and words[number - 1] == "--backend-config"
        if match is not None and word not in command.unsaid and (follows or word.startswith("--backend-config=")):
            yield match[1]


def _world_size(after: tuple[str, ...]) -> int | None:
    stated = _option(after, "--world_size")
    return 1 if stated is None else _number(stated)


def _mpi_ranks(words: tuple[str, ...], names: list[str]) -> int | None:
    """Return the ranks that mpirun starts, all parts of its command together; 1 without it.

    None where the script does not say how many: as many as the hosts have slots, or what a variable holds.
    """
    begin = next((number for number, name in enumerate(names) if name in _MPI), None)
    if begin is None:
        return 1
    total, part = 0, list(words[begin + 1 :])
    while part:
        end = part.index(":") if ":" in part else len(part)
        program = next((number for number, word in enumerate(part[:end]) if Path(word).name in _PROGRAMS), end)
        ranks = _number(next((value for name in _RANKS if (value := _option(part[:program], name)) is not None), None))
        if ranks is None:
            return None
        total += ranks
        part = part[end + 1 :]
    return total


def _shared_memory(before: tuple[str, ...], names: list[str]) -> int | None:
    """Return the bytes of /dev/shm that a container is started with; None where none is, or where it has the host's."""
    if not _CONTAINERS & set(names[: len(before)]) or "run" not in before:
        return None
    stated = _option(before, "--shm-size")
    if stated is not None:
        return _docker_bytes(stated)
    shared = _option(before, "--ipc") not in (None, "private") or any(SHM in word for word in before)
    return None if shared else CONTAINER_SHM


def _docker_bytes(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)([bkmg]?)b?", text.strip().lower())
    if match is None:
        return None
    try:
        return parse_bytes(f"{match[1]} {_DOCKER_UNIT[match[2]]}")
    except (UsageError, ValueError):
        return None


def _options(words: tuple[str, ...] | list[str], name: str) -> Iterator[str]:
    """Yield the values of an option, written with a space or an equals sign."""
    for number, word in enumerate(words):
        if word == name and number + 1 < len(words):
            yield words[number + 1]
        elif word.startswith(f"{name}=") and name.startswith("--"):
            yield word.partition("=")[2]


def _option(words: tuple[str, ...] | list[str], name: str) -> str | None:
    return next(_options(words, name), None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and int(text) > 0 else None
