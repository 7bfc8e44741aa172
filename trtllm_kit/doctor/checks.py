"""All rules over a machine, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from trtllm_kit.doctor import match, rules_cards, rules_host, rules_links, rules_software
from trtllm_kit.doctor.facts import Machine
from trtllm_kit.doctor.rule import WARNING, Rule, Told
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass

Verdict = Literal["yes", "no", "unknown"]


def unread(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Name what could not be read: it is unknown, and never well."""
    for one in machine.unread:
        if not (wanted.on_cpu and one.what == "the GPUs"):
            yield WARNING, f"unknown: {one.what}", one.why, "run doctor where that can be read"


RULES = (
    Rule("DR1", "What could not be read", unread),
    Rule("DR2", "Machine against the profile's hardware", match.as_profile),
    Rule("DR3", "GPUs of several kinds", rules_cards.same_cards),
    Rule("DR4", "Memory errors", rules_cards.memory_errors),
    Rule("DR5", "Clocks that are held down", rules_cards.throttled),
    Rule("DR6", "Power limits", rules_cards.power),
    Rule("DR7", "MIG mode", rules_cards.slices),
    Rule("DR8", "Persistence mode", rules_cards.persistence),
    Rule("DR9", "PCIe width and generation", rules_cards.pcie),
    Rule("DR10", "GPUs that are in use", rules_cards.in_use),
    Rule("DR11", "The odd pair", rules_links.odd),
    Rule("DR12", "GPUs without NVLink between them", rules_links.no_nvlink),
    Rule("DR13", "NVLinks that are down", rules_links.link_states),
    Rule("DR14", "NVLink errors", rules_links.link_errors),
    Rule("DR15", "Peer access", rules_links.peers),
    Rule("DR16", "NVLink fabric", rules_links.fabric),
    Rule("DR17", "NVLink multicast", rules_links.multicast),
    Rule("DR18", "NVLink between nodes", rules_links.imex),
    Rule("DR19", "Host memory", rules_host.host_memory),
    Rule("DR20", "Shared memory", rules_host.shared_memory),
    Rule("DR21", "Limits of a process", rules_host.limits),
    Rule("DR22", "CPU cores", rules_host.cores),
    Rule("DR23", "NUMA nodes", rules_host.numa),
    Rule("DR24", "Disk space", rules_host.disks),
    Rule("DR25", "Ports", rules_host.ports),
    Rule("DR26", "Driver for the release", rules_software.driver),
    Rule("DR27", "Packages of each environment", rules_software.packages),
    Rule("DR28", "Something that serves", rules_software.server),
    Rule("DR29", "MPI", rules_software.mpi),
    Rule("DR30", "Errors of NVSwitches", rules_links.switch_errors),
    Rule("DR31", "RDMA ports", rules_links.rdma),
    Rule("DR32", "Memory against arithmetic", rules_cards.slow_memory),
)


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    machine: Machine
    findings: tuple[Finding, ...]
    verdict: Verdict

    def exit_code(self, *, strict: bool) -> int:
        """Return 0 for yes, 1 for no, 3 where the GPUs are unknown; under ``strict`` a WARNING is a no."""
        bad = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
        if self.verdict == "unknown":
            return 3
        return 1 if any(one.severity in bad for one in self.findings) else 0


def diagnose(machine: Machine, wanted: Wanted) -> Diagnosis:
    """Run every rule; the verdict is unknown where no GPU could be read and one is needed, or one does not answer."""
    findings = tuple(found for rule in RULES for found in rule.findings(machine, wanted))
    errors = any(one.severity is Severity.ERROR for one in findings)
    lost = any(one.what.startswith("GPU ") for one in machine.unread)
    blind = not wanted.on_cpu and (not machine.cards or lost)
    return Diagnosis(machine, findings, "no" if errors else "unknown" if blind else "yes")
