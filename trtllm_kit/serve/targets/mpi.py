"""Targets ``mpirun`` and ``slurm``: one task a GPU, over as many nodes as a replica has."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.serve.targets.found import (
    ALL,
    HERE,
    REPOSITORY,
    beside_folder,
    beside_script,
    every_copy,
    links,
    own_places,
    place_problems,
)
from trtllm_kit.serve.targets.server import (
    REPLICA,
    own_gpus,
    rank_commands,
    served,
    variables,
)
from trtllm_kit.serve.targets.shell import Case, Comment, Line, Number, Output, Run, Script, Set, Var, Word
from trtllm_kit.serve.targets.subject import RUNTIMES_IN_CONTAINER, Files, Subject

HOSTS = "hostfile"
RANK_SCRIPT = "rank.sh"
_RANK = "SLURM_PROCID"


def mpirun_files(subject: Subject) -> Files:
    """Return the script of one replica, and for several nodes the file that names them."""
    subject.check("mpirun", _host_problems(subject), image=False)
    files = {"serve.sh": _mpirun_script(subject).text()}
    for replica in range(subject.replicas if subject.nodes > 1 else 0):
        files[_hostfile(replica)] = "".join(
            f"{host} slots={subject.gpus_per_node}\n" for host in _own(subject, replica)
        )
    if _copies(subject) > 1:
        files[ALL] = every_copy("serve.sh", _copies(subject)).text()
    return files


def mpirun_command(subject: Subject, folder: str) -> tuple[str, ...]:
    """Return the words that start the replicas: all of several nodes, or those of this machine."""
    return ("sh", f"{folder}/{ALL if _copies(subject) > 1 else 'serve.sh'}")


def slurm_files(subject: Subject) -> Files:
    """Return the batch script, and of the C++ backend what each rank runs."""
    subject.check("slurm", _container_problems(subject), image=subject.deploy.pyxis)
    files = {"serve.sbatch": _batch(subject).text()}
    if subject.engines:
        files[RANK_SCRIPT] = _rank_script(subject).text()
    return files


def slurm_command(_subject: Subject, folder: str) -> tuple[str, ...]:
    """Return the words that submit all replicas, an array of jobs."""
    return ("sbatch", f"--chdir={folder}", f"{folder}/serve.sbatch")


def _copies(subject: Subject) -> int:
    """Return how many replicas are started from one machine."""
    return subject.replicas if subject.nodes > 1 else subject.replicas_per_node


def _hostfile(replica: int) -> str:
    return f"{HOSTS}.{replica}"


def _own(subject: Subject, replica: int) -> tuple[str, ...]:
    return subject.deploy.hosts[replica * subject.nodes : (replica + 1) * subject.nodes]


def _host_problems(subject: Subject) -> Iterator[str]:
    wanted = subject.nodes * subject.replicas
    named = subject.deploy.hosts
    if subject.nodes > 1 and len(named) != wanted:
        yield (
            f"deploy.hosts: {len(named)} names, and {subject.replicas} replicas of {subject.world} ranks on "
            f"{subject.nodes} nodes take {wanted}"
        )
    if len(set(named)) < len(named):
        yield "deploy.hosts: a name stands twice"


def _mpirun_script(subject: Subject) -> Script:
    ranks = rank_commands(subject, Var(REPOSITORY), subject.plan.serve.host)
    hosts: tuple[Word, ...] = ()
    if subject.nodes > 1:
        hosts = ("--hostfile", (Var(HERE), f"/{HOSTS}.", Var(REPLICA)))
        hosts += ("--map-by", f"ppr:{subject.gpus_per_node}:node")
    return Script(
        (
            Comment(
                f"Starts {subject.processes} ranks of one replica; TensorRT-LLM {subject.version} must be installed."
            ),
            Comment(f"{REPLICA} says which of {subject.replicas} it is, from 0 on."),
            Set(REPLICA, Var(REPLICA, "0")),
            *variables(subject),
            *own_gpus(subject),
            *beside_script(subject),
            served(subject, ranks, hosts),
        )
    )


def _container_problems(subject: Subject) -> Iterator[str]:
    if subject.deploy.pyxis and subject.runtime not in RUNTIMES_IN_CONTAINER and subject.deploy.image is None:
        yield (
            f"deploy.image: missing; runtime {subject.runtime} imports trtkit, which the release's container lacks "
            "(or set deploy.pyxis: false)"
        )
    if subject.deploy.pyxis:
        yield from place_problems(subject)


def _batch(subject: Subject) -> Script:
    lines: list[Line] = [
        Comment(f"Serves {subject.name} with TensorRT-LLM {subject.version}, one task a rank."),
        Comment(f"It listens on {subject.plan.serve.host} (serve.host) of the first node of each replica."),
    ]
    if subject.replicas > 1:
        lines.append(Set(REPLICA, Number(0, 1, "SLURM_ARRAY_TASK_ID")))
    lines += [*variables(subject), *beside_folder(subject, Output(("pwd", "-P")))]
    if subject.engines:
        task: tuple[Word, ...] = ("sh", (Var(HERE), f"/{RANK_SCRIPT}"))
    else:
        task = rank_commands(subject, Var(REPOSITORY), subject.plan.serve.host)[0].words
    lines.append(Run((*_srun(subject), *task), last=True))
    return Script(tuple(lines), directives=tuple(_directives(subject)))


def _directives(subject: Subject) -> Iterator[str]:
    yield f"--job-name={subject.name}"
    yield f"--nodes={subject.nodes}"
    yield f"--ntasks={subject.processes}"
    yield f"--ntasks-per-node={subject.processes // subject.nodes}"
    if subject.on_gpus:
        yield f"--gres=gpu:{subject.gpus_per_node}"
    if subject.over_nvlink:
        yield f"--segment={subject.nodes}"  # nodes of one NVLink domain, where the topology is one of blocks
    if subject.nodes > 1:
        yield "--exclusive"
    if subject.replicas > 1:
        yield f"--array=0-{subject.replicas - 1}"
    for option, value in (("partition", subject.deploy.partition), ("account", subject.deploy.account)):
        if value is not None:
            yield f"--{option}={value}"
    yield f"--output={subject.name}-%A_%a.log" if subject.replicas > 1 else f"--output={subject.name}-%j.log"


def _srun(subject: Subject) -> Iterator[Word]:
    """Yield the words of ``srun``: one rank that fails ends all, and the wait for a drain is the server's own."""
    yield "srun"
    if subject.world > 1:
        yield "--mpi=pmix"
    yield "--kill-on-bad-exit=1"
    if not subject.deploy.pyxis:
        return
    yield f"--container-image={_enroot(subject.image or '')}"
    paths = [REPOSITORY, *links(subject), *([HERE] if subject.engines else [])]
    mounts: list[str | Var] = []
    for path in paths:
        mounts += [*([","] if mounts else []), Var(path), ":", Var(path), ":ro"]
    for place in own_places(subject):
        mounts.append(f",{place}:{place}:ro")
    yield ("--container-mounts=", *mounts)
    yield "--no-container-mount-home"


def _enroot(image: str) -> str:
    """Spell an image as enroot does: the registry and the path with ``#`` between them."""
    registry, slash, path = image.partition("/")
    return f"{registry}#{path}" if slash and ("." in registry or ":" in registry) else image


def _rank_script(subject: Subject) -> Script:
    commands = [group.words for group in rank_commands(subject, Var(REPOSITORY), subject.plan.serve.host)]
    branches = tuple((str(rank), (Run(words, last=True),)) for rank, words in enumerate(commands))
    intro = Comment("What one rank runs: rank 0 opens the ports, the others work for it.")
    return Script((intro, Case(Var(_RANK), branches)))
