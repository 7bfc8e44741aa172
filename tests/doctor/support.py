"""Machines to judge: a sound one, and changes to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trtllm_kit.doctor.checks import RULES
from trtllm_kit.doctor.facts import Card, Environment, Host, Machine, Program
from trtllm_kit.doctor.topology import parse_topology
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.findings import Finding
from trtllm_kit.spec.load import hardware_names, load_hardware

CATALOGUE = tuple(load_hardware(name).gpu for name in hardware_names())
RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    """Return what a program printed once."""
    return (RECORDED / name).read_text()


def card(index: int = 0, **changes: Any) -> Card:
    """Return a sound H200 of a machine with NVSwitches."""
    sound = Card(
        index=index, name="NVIDIA H200", uuid=f"GPU-{index}", compute_capability=90, memory_bytes=150754820096,
        memory_used_bytes=644939776, power_limit_watts=700.0, power_default_watts=700.0, clock_mhz=345.0,
        clock_most_mhz=1980.0, clock_reasons=1, temperature=32.0, persistence=True, mig=False, ecc=True,
        ecc_uncorrected=0, remap_pending=False, remap_failed=False, pcie_generation=5, pcie_generation_most=5,
        pcie_lanes=16, pcie_lanes_most=16, fabric="completed", fabric_status="success", links_up=18, links_down=0,
        link_errors={"replay": 0, "recovery": 0, "crc_flit": 0}, multicast=True,
    )  # fmt: skip
    return replace(sound, **changes)


HOST = Host(
    cores=224, memory_bytes=2 << 40, memory_available_bytes=2 << 40, shm_bytes=1 << 40, shm_free_bytes=1 << 40,
    open_files=65536, locked_bytes=-1, numa_nodes=2, container="", nvswitches=4, imex_channels=0,
    daemons={"nv-fabricmanager": True, "nvidia-imex": False, "nvidia-persistenced": True},
)  # fmt: skip
SERVES = Environment("/opt/venv/bin/python", {"tensorrt-llm": "1.2.1", "tensorrt": "10.14.1.48"})


def machine(count: int = 8, topology: str = "h200x8.topo.txt", **changes: Any) -> Machine:
    """Return a sound machine of H200s."""
    pairs = {(one, other): "OK" for one in range(count) for other in range(one + 1, count)}
    sound = Machine(
        cards=tuple(card(index) for index in range(count)),
        driver="590.48.01",
        cuda="13.1",
        told_by="NVML",
        topology=parse_topology(recorded(topology)) if count > 1 else None,
        peers=pairs or None,
        host=HOST,
        programs=(Program("mpirun", "/usr/bin/mpirun", "4.1.6"),),
        environments=(SERVES,),
    )
    return replace(sound, **changes)


def with_card(index: int = 0, **changes: Any) -> Machine:
    """Return the machine with one card that is not sound."""
    whole = machine()
    return replace(whole, cards=tuple(replace(one, **changes) if one.index == index else one for one in whole.cards))


def with_host(**changes: Any) -> Machine:
    """Return the machine with another host."""
    return machine(host=replace(HOST, **changes))


def found(of: Machine, wanted: Wanted | None = None, rule: str | None = None) -> list[Finding]:
    """Return the findings of one rule, or of all but the remark on NUMA nodes, which a machine of two sockets has."""
    rules = [one for one in RULES if one.name == rule or (rule is None and one.name != "DR23")]
    asked = wanted or Wanted(catalogue=CATALOGUE)
    return [finding for one in rules for finding in one.findings(of, asked)]
