"""What a target is made for: the plan, its machine, the profile's wishes, and what follows from them once for all.

Placement (ranks, nodes, ports), names, the container and how long things take are decided here, so that no two
targets can differ in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trtllm_kit.errors import ProfileError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.serving_mode import instances, orchestrated, spawns
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.profile_deploy import LONGEST_NAME, SERVICE_NAME, Deploy
from trtllm_kit.units import GIB
from trtllm_kit.upstream import release
from trtllm_kit.upstream.stack import container

Files = dict[str, str]
"""Texts by path, relative to the folder of a target."""
PORT_STEP = 10
"""Between the ports of two replicas that share a host."""
PRE_STOP_SECONDS = 10
"""A stopped pod still serves for so long, until no balancer sends it requests."""
GRACE_MARGIN_SECONDS = 20
"""Between the end of draining and the kill: Triton polls each second and stops its stubs after that."""
READ_BYTES_PER_SECOND = 250e6
"""An allowance for network storage while weights load; what a start may take is the larger of this and start_grace."""
RUNTIMES_IN_CONTAINER = ("tensorrt_llm",)
RUNTIMES_ON_GPUS = ("tensorrt_llm", "transformers")
"""Runtimes that run in the release's own container; the others import trtkit, which is not in it."""
_OF_ENGINES = "preprocessing/config.pbtxt"
"""Only repositories of the C++ backend have it."""
_TAG = re.compile(r"(?:^|/)tritonserver:([0-9]{2}\.[0-9]{2})(?![0-9])")


@dataclass(frozen=True)
class Subject:
    """Everything the targets are made from; ``check`` says what stands in the way."""

    plan: Plan
    hardware: Hardware
    deploy: Deploy
    repository: Mapping[str, str]
    """Texts of the model repository by relative path, as ``deploy`` writes them."""
    place: str
    """Path from a target's folder to the model repository."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """Groups of Prometheus rules, as plain data."""
    linked: bool = True
    """Whether the repository holds a link to its checkpoint, which a container must see too."""
    engine_linked: bool = False
    """Whether it holds one to its engine."""
    in_pods: bool = False
    """Whether every replica has hosts (pods) of its own."""

    @cached_property
    def name(self) -> str:
        """Name of everything that is made."""
        return self.deploy.name or re.sub(r"[._]+", "-", self.plan.profile).strip("-")

    @property
    def instances(self) -> int:
        """Copies of the engine in one server."""
        return instances(self.plan)

    @property
    def world(self) -> int:
        """GPUs of one server: those of the ranks of all its instances."""
        return self.plan.parallelism.world_size * self.instances

    @property
    def processes(self) -> int:
        """Processes that MPI starts for one server: one a rank, where the server does not start its ranks itself."""
        if orchestrated(self.plan):
            return 1 if spawns(self.plan) else 1 + self.world
        of_ranks = self.engines or self.runtime == "tensorrt_llm"
        return self.world if of_ranks and self.instances == 1 else 1

    @property
    def replicas(self) -> int:
        """Copies of the whole server."""
        return self.plan.parallelism.replicas.value // self.instances

    @property
    def nodes(self) -> int:
        """Nodes that one replica spans."""
        return math.ceil(self.world / self.hardware.gpus_per_node)

    @property
    def gpus_per_node(self) -> int:
        """GPUs, and ranks, of one replica on each of its nodes."""
        return self.world // self.nodes

    @property
    def on_gpus(self) -> bool:
        """Whether GPUs are needed; a rehearsal needs none, whatever its plan is for."""
        return not self.hardware.is_rehearsal and self.runtime in RUNTIMES_ON_GPUS

    @property
    def runtime(self) -> str:
        """What answers behind the tensors."""
        return self.plan.runtime.runtime.value

    @property
    def version(self) -> str:
        """The TensorRT-LLM release."""
        return self.plan.release.value

    @property
    def engines(self) -> bool:
        """Whether the C++ backend serves engines (one server a rank), and not the LLM API (one server in all)."""
        return _OF_ENGINES in self.repository

    @property
    def over_nvlink(self) -> bool:
        """Whether the ranks of a replica reach each other on other nodes over NVLink, which needs IMEX."""
        return self.nodes > 1 and self.hardware.nvlink_domain > self.hardware.gpus_per_node

    @property
    def image(self) -> str | None:
        """The container to serve from; None when no container holds the release and the profile names none."""
        return self.deploy.image or release(self.version).image

    @property
    def grace_seconds(self) -> int:
        """From the word to stop to the kill: longer than everything that a stopping server does."""
        return PRE_STOP_SECONDS + self.drain_seconds + GRACE_MARGIN_SECONDS

    @property
    def drain_seconds(self) -> int:
        """How long running requests may finish, whole seconds."""
        return math.ceil(self.deploy.drain)

    @property
    def start_seconds(self) -> float:
        """How long a start may take: the profile's grace, or reading the weights of a node from slow storage."""
        weights = sum(term.bytes for term in self.plan.memory.terms if term.name.startswith(("weights", "scales")))
        return max(self.plan.serve.start_grace, weights * self.gpus_per_node / READ_BYTES_PER_SECOND)

    @property
    def shm_bytes(self) -> int:
        """Shared memory of a server's host: the stubs of Python models, and what NCCL and MPI pass between ranks."""
        return (1 + 2 * self.gpus_per_node) * GIB

    @property
    def shares_host(self) -> bool:
        """Whether several replicas run on one node, each with ports of its own."""
        return not self.in_pods and self.replicas > 1 and self.nodes == 1 and self.replicas_per_node > 1

    @property
    def replicas_per_node(self) -> int:
        """Replicas that fit a node; 1 for those that span several."""
        fit = max(1, self.hardware.gpus_per_node // self.world) if self.on_gpus else self.replicas
        return min(fit, self.replicas)

    @property
    def ports(self) -> dict[str, int]:
        """Ports of the first replica."""
        serve = self.plan.serve
        return {"http": serve.http_port, "grpc": serve.grpc_port, "metrics": serve.metrics_port}

    def check(self, target: str, problems: Iterable[str] = (), *, image: bool = True) -> None:
        """Raise ``ProfileError`` with everything that stands in the way of a target, ``problems`` of its own too.

        ``image`` says whether the target cannot do without the Triton container.
        """
        found = [*self._problems(), *self._image_problems(needed=image), *problems]
        if found:
            raise ProfileError(
                f"profile {self.plan.profile} cannot be deployed to {target}",
                why=f"{len(found)} problem{'s' if len(found) > 1 else ''}",
                hint="correct the keys named above; docs/reference/profile-keys.md lists what each may hold",
                problems=tuple(found),
            )

    def _problems(self) -> Iterator[str]:
        yield from self._name_problems()
        yield from self._secret_problems()
        if self.nodes > 1 and self.processes != self.world:
            yield (
                f"parallelism: one server starts {self.world} ranks itself, and {self.hardware.name} has "
                f"{self.hardware.gpus_per_node} GPUs on a node; ranks over several nodes need a server each"
            )
        if self.world % self.nodes or self.gpus_per_node > self.hardware.gpus_per_node:
            yield (
                f"parallelism: {self.world} ranks do not divide over {self.nodes} nodes of "
                f"{self.hardware.gpus_per_node} GPUs of {self.hardware.name}"
            )
        last = max(self.ports.values()) + PORT_STEP * (self.replicas_per_node - 1)
        if self.shares_host and last > 65535:
            yield f"serve: the last of {self.replicas_per_node} replicas on a node would take port {last}, above 65535"
        taken = {port % PORT_STEP for port in self.ports.values()}
        if len(set(self.ports.values())) < len(self.ports) or (self.shares_host and len(taken) < len(self.ports)):
            yield (
                f"serve: ports {', '.join(map(str, self.ports.values()))} of one replica and those of the next, "
                f"{PORT_STEP} higher, must all differ"
            )

    def _name_problems(self) -> Iterator[str]:
        if len(self.name) > LONGEST_NAME:
            yield (
                f"deploy.name: missing; the profile's own name gives {self.name!r}, {len(self.name)} characters, "
                f"allowed {LONGEST_NAME}"
            )
        if not re.fullmatch(SERVICE_NAME[1:-1], self.name):
            yield (
                f"deploy.name: missing; the profile's own name gives {self.name!r}, and a service's begins with a "
                "letter and holds lower-case letters, digits and dashes"
            )

    def _image_problems(self, *, needed: bool) -> Iterator[str]:
        if self.image is None:
            if needed:
                yield f"deploy.image: missing; no Triton container holds TensorRT-LLM {self.version}"
            return
        tag = _TAG.search(self.image)
        brings = container(tag[1]) if tag else None
        if brings is not None and brings.trtllm != self.version and self.runtime == "tensorrt_llm":
            yield (
                f"deploy.image: {self.image} holds TensorRT-LLM {brings.trtllm}, "
                f"and the plan is made for {self.version}"
            )

    def _secret_problems(self) -> Iterator[str]:
        for name in self.plan.variables:
            if name in self.deploy.secret_environment:
                yield f"environment.{name}: also in deploy.secret_environment; leave it out here"
