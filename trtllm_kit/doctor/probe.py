"""Reads this machine: GPUs, host and software, each with time-outs; what nobody tells is named."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trtllm_kit.doctor.ask import Ask, ask
from trtllm_kit.doctor.facts import Host, Machine, Unread
from trtllm_kit.doctor.kernel_log import read_switch_errors
from trtllm_kit.doctor.probe_gpus import read_gpus
from trtllm_kit.doctor.probe_host import read_host
from trtllm_kit.doctor.probe_software import read_software


def read_machine(
    folders: Sequence[Path] = (), ports: Mapping[int, str] | None = None, python: str | None = None, run: Ask = ask
) -> Machine:
    """Read it all: disks under ``folders``, the ``ports`` that are wanted, NVML through ``python``'s nvidia-ml-py."""
    gpus = read_gpus(python or sys.executable, run)
    host, of_host = read_host(folders, ports or {})
    if host.nvswitches:
        host, of_switches = _with_switch_errors(host, run)
        of_host += of_switches
    programs, environments, of_software = read_software((python,) if python else (), run)
    return Machine(
        cards=gpus.cards,
        driver=gpus.driver,
        cuda=gpus.cuda,
        told_by=gpus.told_by,
        topology=gpus.topology,
        peers=gpus.peers,
        host=host,
        programs=programs,
        environments=environments,
        unread=(*gpus.unread, *of_host, *of_software),
    )


def _with_switch_errors(host: Host, run: Ask) -> tuple[Host, list[Unread]]:
    """Add what the kernel's log tells of the switches; containers and users without rights are not shown it."""
    answer = run("dmesg")
    if answer.why:
        return host, [Unread("errors of the NVSwitches", f"the kernel's log: {answer.why}")]
    return replace(host, switch_errors=read_switch_errors(answer.out)), []
