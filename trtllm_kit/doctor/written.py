"""A hardware profile of the machine that was read, every figure with its source, and its text. Pure.

What a driver tells is measured; rates of arithmetic and memory no driver tells: they are the catalogue's.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from trtllm_kit.doctor.facts import Card, Machine
from trtllm_kit.doctor.match import card_in
from trtllm_kit.doctor.topology import islands
from trtllm_kit.errors import MissingTool, UnknownHardware
from trtllm_kit.spec.hardware import Figure, Gpu, Hardware, Pcie

LANE_BYTES = {3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9}
"""Bytes a second of one PCIe lane in one direction, by generation, as data sheets round them."""
LINK_BYTES = {80: 25e9, 90: 25e9, 100: 50e9, 103: 50e9}
"""Bytes a second of one NVLink in one direction, by compute capability: NVLink 3 and 4, NVLink 5."""
_HEAD = """\
# Hardware profile of one machine, written by trtkit doctor; `hardware:` of a deploy profile may name this file.
# Base units: bytes, bytes a second, operations a second, watts. Every figure has its source; NVLink and PCIe one way.
"""


def hardware_of(machine: Machine, catalogue: Sequence[Gpu], name: str) -> Hardware:
    """Return the machine as a hardware profile.

    Raises ``MissingTool`` where no GPU could be read, ``UnknownHardware`` where its data sheet is not in the catalogue.
    """
    if not machine.cards:
        why = "; ".join(f"{one.what}: {one.why}" for one in machine.unread) or "nothing told of any"
        raise MissingTool("no GPU could be read", why=why, hint="run it where nvidia-smi works")
    card = machine.cards[0]
    gpu = card_in(card, catalogue)
    if gpu is None:
        raise UnknownHardware(
            f"{card.name} is not in the catalogue",
            why="no driver tells the bandwidth and the peaks of a card, and nothing is planned without their source; "
            f"the catalogue has {', '.join(dict.fromkeys(one.name for one in catalogue))}",
            hint="copy a machine of docs/reference/hardware.md into a file and put your card's data sheet in",
        )
    source = f"measured: {machine.told_by} of {card.name}, driver {machine.driver or 'unknown'}"
    domain = len(islands(machine.topology)[0]) if machine.topology is not None else 1
    limits = [one.power_limit_watts for one in machine.cards if one.power_limit_watts]
    host = machine.host.memory_bytes
    return Hardware(
        name=name,
        summary=f"{len(machine.cards)} x {card.name}, as trtkit doctor found it",
        gpu=_gpu(gpu, machine, source),
        gpus_per_node=len(machine.cards),
        nvlink_domain=domain,
        nvlink_multicast=domain > 1 and all(one.multicast is True for one in machine.cards),
        power_limit_watts=Figure(value=min(limits), source=f"{source}, the limit that holds") if limits else None,
        host_memory_bytes=Figure(value=host, source="measured: /proc/meminfo") if host is not None else None,
    )


def _gpu(gpu: Gpu, machine: Machine, source: str) -> Gpu:
    """Return the card with what its driver tells in place of the catalogue's."""
    card = machine.cards[0]
    told: dict[str, object] = {}
    memories = [one.memory_bytes for one in machine.cards if one.memory_bytes]
    if memories:
        told["memory_bytes"] = Figure(value=min(memories), source=f"{source}, total memory")
    if card.power_default_watts:
        told["power_limit_watts"] = Figure(value=card.power_default_watts, source=f"{source}, default limit")
    if card.clock_most_mhz:
        told["clock_hz"] = Figure(value=card.clock_most_mhz * 1e6, source=f"{source}, highest clock")
    nvlink = _nvlink(machine, gpu, source)
    if nvlink is not None:
        told["nvlink_bytes_per_second"] = nvlink
    pcie = _pcie(card, source)
    return gpu.model_copy(update=told | ({"pcie": pcie} if pcie is not None else {}))


def _nvlink(machine: Machine, gpu: Gpu, source: str) -> Figure | None:
    """Count the NVLinks of the pairs that have some; None where none are seen or one's rate is not known."""
    if machine.topology is None or gpu.compute_capability not in LINK_BYTES:
        return None
    counts = [count for pair in machine.topology.links if (count := machine.topology.nvlinks(pair))]
    if not counts:
        return None
    links, each = int(median(counts)), LINK_BYTES[gpu.compute_capability]
    told = f"{links} NVLinks in its topology, of {each / 1e9:.0f} GB/s each way"
    return Figure(value=links * each, source=f"{source}, {told}")


def _pcie(card: Card, source: str) -> Pcie | None:
    generation, lanes = card.pcie_generation_most, card.pcie_lanes_most
    if generation not in LANE_BYTES or not lanes:
        return None
    rate = Figure(value=LANE_BYTES[generation] * lanes, source=f"{source}, PCIe {generation}.0 with {lanes} lanes")
    return Pcie(generation=generation, lanes=lanes, bytes_per_second=rate)


def hardware_text(hardware: Hardware) -> str:
    """Return the profile as YAML that ``spec.hardware_file`` reads."""
    import yaml

    document = {name: value for name, value in hardware.model_dump().items() if name != "name"}
    return _HEAD + yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
