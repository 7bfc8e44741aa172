"""Is this machine what a hardware profile says; and which card of the catalogue a GPU is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trtllm_kit.doctor.facts import Card, Machine
from trtllm_kit.doctor.rule import ERROR, WARNING, Told, names
from trtllm_kit.doctor.topology import islands
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.spec.hardware import Gpu
from trtllm_kit.units import format_bytes

MEMORY_SHARE = 0.02
"""Drivers tell a little more or less of the same card."""
_NOISE = {"nvidia", "sxm", "hbm3", "hbm3e", "edition", "server", "pcie"}
_SAME_WATTS = 1.0


def words(name: str) -> set[str]:
    """Return what tells a card's name from others: ``NVIDIA H200 SXM 141GB`` is ``{h200}``."""
    plain = re.sub(r"\b\d+\s*gb\b", " ", name.lower())
    return {word for word in re.split(r"[^a-z0-9]+", plain) if word} - _NOISE - {"sxm4", "sxm5", "gpu", "blackwell"}


def is_card(card: Card, gpu: Gpu) -> bool:
    """Whether a GPU is a card of the catalogue: its model, compute capability and memory, as far as they are told."""
    if card.compute_capability is not None and card.compute_capability != gpu.compute_capability:
        return False
    if card.memory_bytes is not None and abs(card.memory_bytes / gpu.memory_bytes.value - 1) > MEMORY_SHARE:
        return False
    return words(gpu.name) <= words(card.name)


def card_in(card: Card, catalogue: Iterable[Gpu]) -> Gpu | None:
    """Return the card of the catalogue that a GPU is; None for one that is not there."""
    return next((gpu for gpu in catalogue if gpu.kind == "gpu" and is_card(card, gpu)), None)


def as_profile(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Compare the machine with the profile's hardware."""
    hardware = wanted.hardware
    if hardware is None or hardware.is_rehearsal or not machine.cards:
        return
    yield from _counts(machine, wanted)
    others = [card for card in machine.cards if _differs(card, hardware.gpu)]
    if others:
        yield (
            ERROR,
            f"{names(others)} is not the {hardware.gpu.name} of {hardware.name}",
            (
                f"{_told(others[0])}; wanted {format_bytes(hardware.gpu.memory_bytes.value)}, "
                f"compute capability {_capability(hardware.gpu.compute_capability)}"
            ),
            "choose a profile for this machine, or trtkit doctor --write-hardware FILE and `hardware: FILE`",
        )
    renamed = [
        card for card in machine.cards if card not in others and not words(hardware.gpu.name) <= words(card.name)
    ]
    if renamed:
        yield (
            WARNING,
            f"{names(renamed)} is another card than the {hardware.gpu.name} of {hardware.name}, and does as much",
            _told(renamed[0]),
            "estimates are for the card of the profile: name the hardware that this machine is",
        )
    yield from _links(machine, wanted)
    limit = hardware.power_limit_watts or hardware.gpu.power_limit_watts
    low = [
        card for card in machine.cards if limit and card.power_limit_watts and card.power_limit_watts < limit.value - 1
    ]
    if limit and low:
        yield (
            WARNING,
            f"{names(low)} has a lower power limit than {hardware.name}",
            (f"{low[0].power_limit_watts:.0f} W, {limit.value:.0f} W wanted"),
            f"nvidia-smi -pl {limit.value:.0f}",
        )


def _counts(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    assert wanted.hardware is not None  # noqa: S101  # as_profile asks only with one
    here, all_of_them = len(machine.cards), wanted.hardware.gpus_per_node
    needs = wanted.gpus if wanted.gpus is not None else all_of_them
    if here < needs:
        yield (
            ERROR,
            f"profile {wanted.profile} takes more GPUs than are here",
            f"{here} here, {needs} wanted",
            ("choose a profile for this machine, or lower parallelism"),
        )
    elif here < all_of_them:
        yield (
            WARNING,
            f"{wanted.hardware.name} has more GPUs than are here",
            f"{here} here, {all_of_them} wanted",
            ("the profile's ranks fit; name the hardware that this machine is"),
        )


def _differs(card: Card, gpu: Gpu) -> bool:
    if card.compute_capability is not None and card.compute_capability != gpu.compute_capability:
        return True
    return card.memory_bytes is not None and card.memory_bytes < gpu.memory_bytes.value * (1 - MEMORY_SHARE)


def _told(card: Card) -> str:
    memory = format_bytes(card.memory_bytes) if card.memory_bytes is not None else "unknown memory"
    return f"{card.name}, {memory}, compute capability {_capability(card.compute_capability)}"


def _capability(number: int | None) -> str:
    return "unknown" if number is None else f"{number // 10}.{number % 10}"


def _links(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Yield what NVLink lacks: as many GPUs must be joined as the profile takes of one domain."""
    assert wanted.hardware is not None  # noqa: S101
    if machine.topology is None:
        return
    largest = len(islands(machine.topology)[0])
    needs = min(wanted.hardware.nvlink_domain, wanted.hardware.gpus_per_node, len(machine.cards))
    if largest < needs:
        yield (
            ERROR,
            f"NVLink joins fewer GPUs than in {wanted.hardware.name}",
            f"{largest} here, {needs} wanted",
            ("nvidia-smi nvlink -s; look at the fabric manager"),
        )
