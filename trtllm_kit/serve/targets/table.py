"""The targets by name: what each makes, and the command that applies it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trtllm_kit.serve.targets.dynamo import dynamo_command, dynamo_files
from trtllm_kit.serve.targets.kubernetes import kubernetes_command, kubernetes_files
from trtllm_kit.serve.targets.local import local_command, local_files
from trtllm_kit.serve.targets.monitoring import monitoring_command, monitoring_files
from trtllm_kit.serve.targets.mpi import mpirun_command, mpirun_files, slurm_command, slurm_files
from trtllm_kit.serve.targets.subject import Files, Subject


@dataclass(frozen=True, slots=True)
class Target:
    """One way to deploy."""

    files: Callable[[Subject], Files]
    """Makes the files; raises ``ProfileError`` with everything in the profile that stands in the way."""
    command: Callable[[Subject, str], tuple[str, ...]]
    """Makes the words that apply the files of a folder."""
    pods: bool = False
    """Whether the servers are pods, which see the checkpoint in a volume."""


TARGETS = {
    "local": Target(local_files, local_command),
    "mpirun": Target(mpirun_files, mpirun_command),
    "slurm": Target(slurm_files, slurm_command),
    "kubernetes": Target(kubernetes_files, kubernetes_command, pods=True),
    "dynamo": Target(dynamo_files, dynamo_command, pods=True),
    "monitoring": Target(monitoring_files, monitoring_command),
}
