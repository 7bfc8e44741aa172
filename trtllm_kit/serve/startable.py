"""Whether one machine can start what a plan describes: asked before anything is written (pure)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

from trtllm_kit.errors import UsageError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.serving_mode import instances
from trtllm_kit.repository.compose import repository_facts
from trtllm_kit.spec.hardware import Hardware

_RUN = "trtkit deploy with --target mpirun or --target slurm in the place of --start, and run the command it prints"


def require_startable(plan: Plan, hardware: Hardware, out: Path) -> None:
    """Raise ``UsageError`` where ``--start`` could not serve the plan: ranks on other nodes, or servers of their own.

    A rehearsal runs in one server, whatever its plan is for. ``out`` is the repository, for the message.
    """
    if plan.runtime.runtime.value != "tensorrt_llm" or hardware.is_rehearsal:
        return
    world, here = plan.parallelism.world_size * instances(plan), hardware.gpus_per_node
    nodes = math.ceil(world / here)
    if nodes > 1:
        raise UsageError(
            f"--start cannot serve {out}, which is for {nodes} nodes",
            why=f"it has {world} ranks, and a node of {hardware.name} has {here} GPUs",
            hint=_RUN,
        )
    require_one_server(repository_facts(plan), out)


def require_one_server(facts: Mapping[str, object], repository: Path) -> None:
    """Raise ``UsageError`` for ranks that are servers of their own: one of them alone would wait for the others.

    ``facts`` are those of the repository's manifest.
    """
    servers = facts.get("servers", 1)
    if isinstance(servers, int) and servers > 1 and facts.get("runtime") == "tensorrt_llm":
        raise UsageError(
            f"{repository} is served by {servers} servers together",
            why="its engine has a file for each rank, and every rank is a server that mpirun or Slurm starts",
            hint=_RUN,
        )


def require_secrets(names: Collection[str], environment: Mapping[str, str]) -> None:
    """Raise ``UsageError`` for secrets of the profile that the shell which starts the server does not have."""
    missing = sorted(name for name in names if not environment.get(name))
    if missing:
        raise UsageError(
            f"{', '.join(missing)}: not set here",
            why="deploy.secret_environment names what the server needs, and outside of a cluster this shell has it",
            hint=f"export {missing[0]}=... and run the same command again",
        )
