"""The commands of a server, rank by rank, as every target starts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trtllm_kit.serve.launch import LAUNCHER, MPIRUN, bound_address
from trtllm_kit.serve.targets.shell import Case, Drained, Line, Number, Part, Run, Set, Var, Word
from trtllm_kit.serve.targets.subject import PORT_STEP, Subject
from trtllm_kit.upstream.deployment import server_flag

MODEL = "tensorrt_llm"
TRITONSERVER = "tritonserver"
REPLICA = "REPLICA"
"""Variable that says which copy a script starts, from 0 on."""
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # in a pod: what is reachable is decided outside
_SERVES = f"^([^ ]*/)?{TRITONSERVER} .*--http-port="
"""Command line of the server that opened ports, and of no launcher before it."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks that run the same command."""

    count: int
    words: tuple[Word, ...]


def rank_commands(subject: Subject, repository: Word, address: str) -> tuple[Ranks, ...]:
    """Return what the ranks of one replica run, rank 0 first.

    The LLM API has one server: every rank runs its launcher, which serves on rank 0 and works on the others; several
    instances in one server need none. Of the C++ backend every rank is a server of its own, of which rank 0 alone
    opens ports; an orchestrator is alone, or the rank before them.
    """
    if not subject.engines:
        launcher = (LAUNCHER,) if subject.runtime == "tensorrt_llm" and subject.instances == 1 else ()
        return (Ranks(subject.processes, (*launcher, *_server(subject, repository, address, ""))),)
    first = Ranks(1, tuple(_server(subject, repository, address, "0")))
    others = (Ranks(1, tuple(_worker(subject, repository, str(rank)))) for rank in range(1, subject.processes))
    return (first, *others)


def mpirun(subject: Subject, ranks: tuple[Ranks, ...], hosts: Iterable[Word] = ()) -> tuple[Word, ...]:
    """Return the command that starts the ranks; ``hosts`` are options that say on which nodes.

    One rank needs no mpirun. Every variable of the profile is passed on to other nodes.
    """
    if sum(group.count for group in ranks) == 1:
        return ranks[0].words
    words: list[Word] = [*MPIRUN, *hosts]
    if subject.nodes > 1:
        for name in [*subject.plan.variables, *subject.deploy.secret_environment]:
            words += ["-x", name]
    for number, group in enumerate(ranks):
        words += [*([":"] if number else []), "-n", str(group.count), *group.words]
    return tuple(words)


def served(subject: Subject, ranks: tuple[Ranks, ...], hosts: Iterable[Word] = ()) -> Line:
    """Return the last line of a script: it starts the ranks, and lets running requests finish when it is told to end.

    Neither mpirun nor the launcher of the LLM API passes a signal on: the one kills its ranks a second later, the
    other lets none through. So the server that opened the ports is told, and the others end with it.
    """
    words = mpirun(subject, ranks, hosts)
    return Run(words, last=True) if words[0] == TRITONSERVER else Drained(words, _SERVES)


def variables(subject: Subject) -> Iterator[Line]:
    """Yield the lines that set the profile's variables, and that end a script in which one of its secrets is unset."""
    for name, value in subject.plan.variables.items():
        yield Set(name, value)
    for name in subject.deploy.secret_environment:
        yield Run((":", Var(name)))


def own_gpus(subject: Subject) -> Iterator[Line]:
    """Yield the lines that give each of several replicas on a host its own GPUs."""
    if not (subject.shares_host and subject.on_gpus):
        return
    branches = tuple(
        (str(replica), (Set("CUDA_VISIBLE_DEVICES", gpus_of(subject, replica)),))
        for replica in range(subject.replicas_per_node)
    )
    yield Case(Var(REPLICA), branches)


def gpus_of(subject: Subject, replica: int) -> str:
    """Return the GPUs of a replica on its host, by number, e.g. ``2,3``."""
    return ",".join(str(replica * subject.world + rank) for rank in range(subject.world))


def port(subject: Subject, name: str) -> Part:
    """Return a port as a word of a script: that of the replica, where several share a host."""
    number = subject.ports[name]
    return Number(number, PORT_STEP, REPLICA) if subject.shares_host else str(number)


def flags(subject: Subject) -> Iterator[str]:
    """Yield the flags that do not depend on the rank, as the release's server knows them."""
    yield f"{server_flag('exit_timeout', subject.version)}={subject.drain_seconds}"
    for name in ("no_auto_complete", "histogram_latencies"):
        spelling = server_flag(name, subject.version)
        if spelling is not None:
            yield spelling


def shm_prefix(subject: Subject, rank: str) -> Word:
    """Return the flag that names the shared memory of a server's stubs, unlike that of any other on its host."""
    replica: tuple[Part, ...] = (Var(REPLICA), "_") if subject.shares_host else ()
    own = (f"{rank}_",) if rank else ()
    return (f"--backend-config=python,shm-region-prefix-name={subject.name}_", *replica, *own)


def _server(subject: Subject, repository: Word, address: str, rank: str) -> Iterator[Word]:
    yield TRITONSERVER
    yield _joined("--model-repository=", repository)
    for name in subject.ports:
        yield f"--{name}-address={bound_address(name, address)}"
        yield (f"--{name}-port=", port(subject, name))
    yield from flags(subject)
    yield shm_prefix(subject, rank)


def _worker(subject: Subject, repository: Word, rank: str) -> Iterator[Word]:
    yield TRITONSERVER
    yield _joined("--model-repository=", repository)
    yield "--model-control-mode=explicit"
    yield f"--load-model={MODEL}"
    for name in subject.ports:
        yield f"--allow-{name}=false"
    yield from flags(subject)
    yield shm_prefix(subject, rank)


def _joined(text: str, rest: Word) -> Word:
    return (text, *(rest if isinstance(rest, tuple) else (rest,)))
