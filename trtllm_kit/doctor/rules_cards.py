"""Rules about each GPU: memory errors, throttling, power, MIG, persistence, PCIe, what else uses it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trtllm_kit.doctor.facts import Machine
from trtllm_kit.doctor.match import card_in
from trtllm_kit.doctor.rule import ERROR, INFO, WARNING, Told, each, names
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.units import format_bytes

IDLE, APPLICATION_CLOCKS, POWER_CAP = 1, 2, 4
HOT = {8: "hardware slowdown", 32: "heat, by software", 64: "heat, by hardware", 128: "power brake"}
"""NVML's bits for a clock that is held down by a fault or by heat."""
IN_USE_BYTES = 1 << 30
"""What an idle driver keeps of a card is below it: 0.6 GiB on an H200."""
_SAME_WATTS = 1.0
MOST_FLOPS_A_BYTE = 350
"""Operations of 16 bit a byte of memory: cards with HBM have 140 to 315, those with GDDR6 of their years some 400."""


def same_cards(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Want all GPUs alike: ranks wait for the slowest."""
    kinds = Counter(card.name for card in machine.cards)
    if len(kinds) > 1:
        found = ", ".join(f"{count} x {name}" for name, count in kinds.items())
        yield WARNING, "the GPUs are of several kinds", found, "set CUDA_VISIBLE_DEVICES to those of one kind"


def memory_errors(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Judge errors of memory: a GPU with uncorrected ones may answer wrongly, pending rows want a reset."""
    failed = [card for card in machine.cards if card.remap_failed]
    if failed:
        yield (
            ERROR,
            f"{names(failed)} could not replace a broken row of memory",
            "row remapping failed: yes",
            ("take the GPU out of service: its maker's field diagnostics decide"),
        )
    wrong = [card for card in machine.cards if card.ecc_uncorrected]
    if wrong:
        yield (
            ERROR,
            f"{names(wrong)} had memory errors that were not corrected",
            each(wrong, lambda card: f"{card.ecc_uncorrected} since the driver was loaded"),
            "stop what runs there, then nvidia-smi --gpu-reset -i GPU",
        )
    pending = [card for card in machine.cards if card.remap_pending and not card.remap_failed]
    if pending:
        yield (
            WARNING,
            f"{names(pending)} waits for a reset to replace a broken row",
            "row remapping pending: yes",
            ("nvidia-smi --gpu-reset -i GPU"),
        )
    off = [card for card in machine.cards if card.ecc is False]
    if off:
        yield INFO, f"{names(off)} has ECC switched off", "ECC: off", "nvidia-smi -e 1, and a reset"


def throttled(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Name clocks that heat or a fault holds down, which costs rate on every step."""
    for card in machine.cards:
        reasons = card.clock_reasons or 0
        found = [words for bit, words in HOT.items() if reasons & bit]
        told = f"{card.clock_mhz or 0:.0f} of {card.clock_most_mhz or 0:.0f} MHz"
        warm = f", {card.temperature:.0f} °C" if card.temperature is not None else ""
        if found:
            yield (
                WARNING,
                f"GPU {card.index} holds its clock down: {' and '.join(found)}",
                told + warm,
                ("look at air, cooling and power supplies; nvidia-smi -q -d PERFORMANCE"),
            )
        if reasons & APPLICATION_CLOCKS:
            yield INFO, f"GPU {card.index} runs at clocks that somebody set", told, "nvidia-smi -rac, nvidia-smi -rgc"
        if reasons & POWER_CAP:
            limit = f"{card.power_limit_watts:.0f} W" if card.power_limit_watts else "unknown"
            yield (
                INFO,
                f"GPU {card.index} works at its power limit",
                f"{told}, limit {limit}",
                ("nothing to do: large products are bound by it"),
            )


def power(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Compare limits: one below the card's own lowers its clock, and ranks wait for the lowest."""
    limits = {card.index: card.power_limit_watts for card in machine.cards if card.power_limit_watts}
    if limits and max(limits.values()) - min(limits.values()) > _SAME_WATTS:
        yield (
            WARNING,
            "the GPUs have different power limits",
            ", ".join(f"GPU {index}: {watts:.0f} W" for index, watts in limits.items()),
            f"nvidia-smi -pl {max(limits.values()):.0f}",
        )
    meant = wanted.hardware.power_limit_watts.value if wanted.hardware and wanted.hardware.power_limit_watts else None
    low = [
        card
        for card in machine.cards
        if card.power_limit_watts
        and card.power_default_watts
        and card.power_limit_watts < card.power_default_watts - _SAME_WATTS
        and not (meant and card.power_limit_watts >= meant - _SAME_WATTS)
    ]
    if low:
        yield (
            WARNING,
            f"{names(low)} is limited below what it comes with",
            each(low, lambda card: f"{card.power_limit_watts:.0f} of {card.power_default_watts:.0f} W"),
            f"nvidia-smi -pl {low[0].power_default_watts:.0f}",
        )


def slices(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Name GPUs in MIG mode, which show slices without NVLink and peers."""
    found = [card for card in machine.cards if card.mig]
    if found:
        yield (
            WARNING,
            f"{names(found)} is in MIG mode: ranks get slices of it, without peers",
            "MIG: on",
            ("nvidia-smi -mig 0, or plan with gpu_memory of a slice and one rank"),
        )


def persistence(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Want persistence: without it the driver unloads when nobody uses the GPU, and forgets limits."""
    off = [card for card in machine.cards if card.persistence is False]
    if off and not (machine.host.daemons or {}).get("nvidia-persistenced"):
        yield (
            INFO,
            f"{names(off)} is not in persistence mode: each first start waits for the driver",
            ("persistence mode: off"),
            "run nvidia-persistenced, or nvidia-smi -pm 1",
        )


def pcie(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Compare the link: fewer lanes are a bad seat or slot, a lower generation is normal while the card is idle."""
    for card in machine.cards:
        lanes, most = card.pcie_lanes, card.pcie_lanes_most
        if lanes and most and lanes < most:
            yield (
                WARNING,
                f"GPU {card.index} has fewer PCIe lanes than it could",
                f"{lanes} of {most} lanes",
                ("look at its seat, slot and riser; lspci -vv shows LnkSta"),
            )
        now, best = card.pcie_generation, card.pcie_generation_most
        if now and best and now < best:
            idle = card.clock_reasons is None or bool(card.clock_reasons & IDLE)
            why = "as idle GPUs do" if idle else "under load"
            yield (
                INFO if idle else WARNING,
                f"GPU {card.index} runs PCIe at a lower generation, {why}",
                (f"generation {now} of {best}"),
                "ask again under load" if idle else "look at the slot and the BIOS's limit of its generation",
            )


def in_use(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Name GPUs whose memory others hold: it is not there for weights and cache."""
    found = [card for card in machine.cards if (card.memory_used_bytes or 0) > IN_USE_BYTES]
    if found:
        yield (
            WARNING if wanted.profile else INFO,
            f"{names(found)} is in use",
            each(
                found,
                lambda card: (
                    f"{format_bytes(card.memory_used_bytes or 0)} of {format_bytes(card.memory_bytes or 0)} taken"
                ),
            ),
            "nvidia-smi shows the processes",
        )


def slow_memory(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Tell of cards with much arithmetic for their memory: few requests at once do not use it."""
    for name in dict.fromkeys(card.name for card in machine.cards):
        cards = [card for card in machine.cards if card.name == name]
        gpu = card_in(cards[0], wanted.catalogue)
        peak = gpu.dense_flops.get("bf16") if gpu is not None else None
        if gpu is None or peak is None:
            continue
        ratio = peak.value / gpu.memory_bandwidth.value
        if ratio > MOST_FLOPS_A_BYTE:
            yield (
                INFO,
                f"{names(cards)} has much arithmetic for its memory: generation waits for the memory",
                f"{peak.value / 1e12:.0f} TFLOP/s in 16 bit, {gpu.memory_bandwidth.value / 1e9:.0f} GB/s: "
                f"{ratio:.0f} operations a byte, {MOST_FLOPS_A_BYTE} or less on cards with HBM",
                "weights and KV cache in 8 or 4 bit, and large batches, give most there; trtkit estimate shows it",
            )
