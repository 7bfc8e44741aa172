"""A diagnosis as one object and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from trtllm_kit.doctor.checks import Diagnosis
from trtllm_kit.doctor.facts import Card, Machine
from trtllm_kit.units import counted, format_bytes

_VERDICTS = {"yes": "well", "no": "not well", "unknown": "unknown: the GPUs could not all be read"}
UNKNOWN = "unknown"


def report_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return everything that was read and found as JSON's own types."""
    machine = diagnosis.machine
    topology = machine.topology
    return {
        "verdict": diagnosis.verdict,
        "gpus": [asdict(card) for card in machine.cards],
        "driver": machine.driver,
        "cuda": machine.cuda,
        "told_by": machine.told_by or None,
        "links": None if topology is None else {_pair(pair): cell for pair, cell in topology.links.items()},
        "peers": None if machine.peers is None else {_pair(pair): word for pair, word in machine.peers.items()},
        "numa": None if topology is None else {str(gpu): node for gpu, node in topology.numa.items()},
        "adapters": None
        if topology is None
        else {name: {str(gpu): way for gpu, way in ways.items()} for name, ways in topology.nics.items()},
        "host": asdict(machine.host),
        "programs": [asdict(one) for one in machine.programs],
        "environments": [asdict(one) for one in machine.environments],
        "unread": [asdict(one) for one in machine.unread],
        "findings": [one.model_dump(mode="json") for one in diagnosis.findings],
    }


def _pair(pair: tuple[int, int]) -> str:
    return f"{pair[0]}-{pair[1]}"


def facts_lines(machine: Machine) -> Iterator[str]:
    """Yield what was read, a line each; what is unknown says so."""
    yield f"driver: {machine.driver or UNKNOWN}, CUDA up to {machine.cuda or UNKNOWN}" + (
        f" (told by {machine.told_by})" if machine.told_by else ""
    )
    for card in machine.cards:
        yield f"GPU {card.index}: {', '.join(_card(card))}"
    if not machine.cards:
        yield f"GPUs: {UNKNOWN}"
    yield from _links(machine)
    host = machine.host
    memory, shm = _bytes(host.memory_bytes), _bytes(host.shm_bytes)
    yield f"host: {host.cores or UNKNOWN} cores, {memory} of memory, {shm} under /dev/shm" + (
        f", in a container ({host.container})" if host.container else ""
    )
    if host.rdma:
        rates = ", ".join(dict.fromkeys(one.rate for one in host.rdma if one.active and one.rate))
        active = sum(one.active for one in host.rdma)
        yield f"RDMA: {active} of {counted(len(host.rdma), 'port')} active" + (f", {rates}" if rates else "")
    for disk in host.disks:
        yield f"disk {disk.path}: {format_bytes(disk.free_bytes)} free of {format_bytes(disk.total_bytes)}"
    found = [f"{one.name} {one.version or UNKNOWN}" for one in machine.programs]
    yield f"programs: {', '.join(found) or 'none of those looked for'}"
    for one in machine.environments:
        held = ", ".join(f"{name} {version}" for name, version in one.versions.items())
        yield f"environment {one.python}: {held or 'none of the packages looked for'}"


def _card(card: Card) -> Iterator[str]:
    yield card.name
    if card.compute_capability is not None:
        yield f"compute capability {card.compute_capability // 10}.{card.compute_capability % 10}"
    yield _bytes(card.memory_bytes)
    yield f"{card.power_limit_watts:.0f} W" if card.power_limit_watts else f"power limit {UNKNOWN}"
    if card.temperature is not None:
        yield f"{card.temperature:.0f} °C"
    yield {True: "ECC on", False: "ECC off", None: f"ECC {UNKNOWN}"}[card.ecc]
    if card.pcie_generation and card.pcie_lanes:
        yield f"PCIe {card.pcie_generation} x{card.pcie_lanes}"
    if card.links_up is not None:
        yield counted(card.links_up, "NVLink")
    if card.multicast is not None:
        yield "NVLS" if card.multicast else "no NVLS"


def _links(machine: Machine) -> Iterator[str]:
    if machine.topology is not None:
        kinds = dict[str, int]()
        for cell in machine.topology.links.values():
            kinds[cell] = kinds.get(cell, 0) + 1
        yield "links: " + ", ".join(f"{counted(count, 'pair')} {cell}" for cell, count in kinds.items())
    if machine.peers is not None:
        open_pairs = sum(word == "OK" for word in machine.peers.values())
        yield f"peer access: {open_pairs} of {counted(len(machine.peers), 'pair')}"


def _bytes(count: int | None) -> str:
    return UNKNOWN if count is None else format_bytes(count)


def verdict_words(diagnosis: Diagnosis) -> str:
    """Return the verdict in words."""
    return _VERDICTS[diagnosis.verdict]
