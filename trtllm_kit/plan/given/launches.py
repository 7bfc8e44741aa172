"""Rules about a launch: ranks, nodes, shared memory, fabrics, probes (PF20)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.facts import LaunchFacts
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.units import GIB, format_bytes, format_seconds
from trtllm_kit.upstream.failures import failure

RULE = "PF20"
_LEAST_SHM = GIB
_UCX = ("UCX_TLS", "UCX_NET_DEVICES", "OMPI_MCA_pml", "OMPI_MCA_btl")


def launch(facts: LaunchFacts) -> Iterator[Finding]:
    """Run every rule about a launch."""
    yield from _ranks(facts)
    yield from _nodes(facts)
    yield from _shared_memory(facts)
    yield from _machine(facts)
    yield from _probes(facts)


def _ranks(facts: LaunchFacts) -> Iterator[Finding]:
    known = failure("ranks_of_world", facts.release)
    if known is not None and facts.wanted_ranks not in (None, facts.ranks) and not facts.orchestrator:
        yield of_failure(
            RULE,
            known,
            f"A launch with other ranks than the engine's {known.note}.",
            f"{facts.ranks} MPI ranks, tensor x pipeline x context of the engine is {facts.wanted_ranks}",
            f"start {facts.wanted_ranks} ranks; `mpirun -n {facts.wanted_ranks}` whose ranks each see a world of one "
            "is an mpi4py of another MPI",
        )
    leader = failure("leader_of_several", facts.release)
    if leader is not None and facts.models > 1 and facts.ranks > 1 and not facts.orchestrator:
        yield of_failure(
            RULE,
            leader,
            f"Leader mode {leader.note}.",
            f"{facts.models} models with engines, {facts.ranks} MPI ranks",
            "one server a model, or the orchestrator (--multi-model) and a memory fraction for each",
        )


def _nodes(facts: LaunchFacts) -> Iterator[Finding]:
    wrong = failure("gpus_per_node", facts.release)
    asked, real = facts.asked_gpus_per_node, facts.gpus_per_node
    if wrong is not None and facts.nodes > 1 and None not in (asked, real) and asked != real:
        yield of_failure(
            RULE,
            wrong,
            f"gpus_per_node that is not the node's {wrong.note}.",
            f"gpus_per_node {asked}, {real} GPUs a node",
            f"gpus_per_node: {real}",
        )
    hosts = failure("hosts_not_named", facts.release)
    if hosts is not None and facts.nodes > 1 and not facts.names_hosts:
        yield of_failure(
            RULE,
            hosts,
            f"A launch over nodes that names none {hosts.note}.",
            f"{facts.nodes} nodes, no host list",
            "a host file with slots for mpirun, or one process a rank (srun, LeaderWorkerSet with "
            "trtllm-llmapi-launch)",
        )
    down = failure("fabric_down", facts.release)
    if down is not None and facts.tensor_over_nodes and facts.fabric_up is False:
        yield of_failure(
            RULE,
            down,
            f"NVLink between nodes without its fabric {down.note}.",
            "tensor ranks over nodes, IMEX not up",
            "start nvidia-imex on every node (nvidia-imex-ctl -N), or keep tensor ranks within a node",
        )


def _shared_memory(facts: LaunchFacts) -> Iterator[Finding]:
    known = failure("shared_prefix", facts.release)
    twice = sorted(name for name, count in Counter(facts.shm_prefixes).items() if count > 1)
    if known is not None and twice:
        yield of_failure(
            RULE,
            known,
            f"A second server or rank with the same prefix {known.note}.",
            f"shm-region-prefix-name {', '.join(twice)} more than once",
            "--backend-config=python,shm-region-prefix-name=PREFIX with a prefix for each",
        )
    if facts.shm_bytes is not None and facts.shm_bytes < _LEAST_SHM:
        yield found(
            RULE,
            Severity.WARNING,
            "Python models and NCCL share memory through /dev/shm, and it is small.",
            f"{format_bytes(facts.shm_bytes)}, {format_bytes(_LEAST_SHM)} is what launch examples give",
            "docker run --shm-size 1g or more; an emptyDir with medium Memory in Kubernetes",
        )


def _machine(facts: LaunchFacts) -> Iterator[Finding]:
    clone = failure("clone_hides_package", facts.release)
    if clone is not None and facts.folder_holds_clone:
        yield of_failure(
            RULE,
            clone,
            f"A server started beside a folder tensorrt_llm {clone.note} in place of the installed package.",
            "tensorrt_llm in the working folder",
            "start from another folder",
        )
    ucx = failure("ucx_devices", facts.release)
    if ucx is not None and (facts.machine or "").startswith("gh200") and not set(_UCX) & facts.variables.keys():
        yield of_failure(
            RULE,
            ucx,
            f"MPI on GH200 {ucx.note} where the container sees InfiniBand that it cannot use.",
            f"none of {', '.join(_UCX)} is set",
            'environment: {UCX_TLS: "tcp,cuda_copy,cuda_ipc"} if it happens',
        )


def _probes(facts: LaunchFacts) -> Iterator[Finding]:
    known = failure("ready_as_liveness", facts.release)
    if known is not None and (facts.liveness_path or "").rstrip("/").endswith("/ready"):
        yield of_failure(
            RULE,
            known,
            f"Readiness as liveness probe {known.note}.",
            f"liveness {facts.liveness_path}",
            "liveness on /v2/health/live, readiness on /v2/health/ready, and a startup probe",
        )
    if None in (facts.startup_seconds, facts.load_seconds):
        return
    allowed, takes = facts.startup_seconds or 0.0, facts.load_seconds or 0.0
    if allowed < takes:
        yield found(
            RULE,
            Severity.WARNING,
            "The probes allow less time than the weights take to load: the server is restarted for ever.",
            f"{format_seconds(allowed)} allowed, {format_seconds(takes)} estimated",
            f"a startup probe of {format_seconds(2 * takes)}",
        )
