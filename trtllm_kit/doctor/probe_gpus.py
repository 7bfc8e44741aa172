"""Asks about the GPUs: NVML where a Python has nvidia-ml-py, else ``nvidia-smi``; CUDA's driver; the topology."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from trtllm_kit.doctor.ask import Answer, Ask, ask, ask_program
from trtllm_kit.doctor.facts import Card, Unread
from trtllm_kit.doctor.smi_text import read_peers, read_query, with_links
from trtllm_kit.doctor.topology import Pair, Topology, parse_topology
from trtllm_kit.light import dataclass

SMI = "nvidia-smi"
GPUS = "the GPUs"
_WANTED = {
    "memory_bytes": "memory",
    "compute_capability": "compute capability",
    "power_limit_watts": "power limit",
    "clock_reasons": "clock reasons",
    "pcie_lanes": "PCIe width",
}
"""Facts of a card that rules rest on, in words."""
_FIELDS = {field.name for field in fields(Card)}


@dataclass(frozen=True)
class Gpus:
    """What was told of them."""

    cards: Sequence[Card]
    driver: str | None
    cuda: str | None
    told_by: str
    topology: Topology | None
    peers: Mapping[Pair, str] | None
    unread: Sequence[Unread]


def read_gpus(python: str = sys.executable, run: Ask = ask) -> Gpus:
    """Read all that there is; what nobody tells is named in ``unread``."""
    unread: list[Unread] = []
    told, why = ask_program("nvml.py", python=python, run=run)
    if not why:
        cards = [card_of(document) for document in told["cards"]]
        gpus = Gpus(cards, told.get("driver"), told.get("cuda"), "NVML", None, None, ())
        unread += [Unread(f"GPU {number}", f"it does not answer: {words}") for number, words in told["lost"]]
    else:
        gpus = _from_smi(run, why, unread)
    if not gpus.cards:
        return replace(gpus, unread=tuple(unread))
    gpus = _with_cuda(gpus, python, run, unread)
    topology, peers = None, gpus.peers
    if len(gpus.cards) > 1:
        topology = _topology(run, unread)
        if peers is None:
            answer = run(SMI, "topo", "-p2p", "r")
            peers = read_peers(answer.out) or None
            if peers is None:
                unread.append(Unread("peer access between the GPUs", answer.why or "nvidia-smi tells no pair"))
    unread += _untold(gpus, topology)
    return replace(gpus, topology=topology, peers=peers, unread=tuple(unread))


def _untold(gpus: Gpus, topology: Topology | None) -> list[Unread]:
    """Name what every card should tell and does not; errors of NVLinks only where there are some."""
    wanted = dict(_WANTED)
    if topology is not None and any(map(topology.nvlinks, topology.links)):
        wanted |= {"links_up": "NVLink states", "link_errors": "NVLink errors"}
    found = []
    for name, words in wanted.items():
        without = [card.index for card in gpus.cards if getattr(card, name) in (None, {})]
        if without:
            of = f"{words} of GPU {', '.join(map(str, without))}"
            found.append(Unread(of, f"{gpus.told_by} does not tell it here"))
    uncounted = [card.index for card in gpus.cards if card.ecc and card.ecc_uncorrected is None]
    if uncounted:
        found.append(Unread(f"memory errors of GPU {', '.join(map(str, uncounted))}", "they are not counted here"))
    return found


def card_of(document: Mapping[str, Any]) -> Card:
    """Return a card of what ``nvml.py`` prints."""
    return Card(**{name: value for name, value in document.items() if name in _FIELDS})


def _from_smi(run: Ask, why_not_nvml: str, unread: list[Unread]) -> Gpus:
    answer = run(SMI, "-q", "-x")
    nothing = Gpus((), None, None, "", None, None, ())
    if answer.why:
        unread.append(Unread(GPUS, f"{answer.why}; NVML: {why_not_nvml}"))
        return nothing
    try:
        cards, driver, cuda = read_query(answer.out)
    except ValueError as error:
        unread.append(Unread(GPUS, f"nvidia-smi -q -x: {error}; NVML: {why_not_nvml}"))
        return nothing
    status, errors = run(SMI, "nvlink", "-s"), run(SMI, "nvlink", "-e")
    capabilities = _out(run(SMI, "--query-gpu=compute_cap", "--format=csv,noheader")).split()
    cards = with_links(cards, _out(status), _out(errors))
    if len(capabilities) == len(cards):
        told = [word.replace(".", "") for word in capabilities]
        cards = [
            replace(card, compute_capability=int(word) if word.isdigit() else None)
            for card, word in zip(cards, told, strict=True)
        ]
    return Gpus(cards, driver, cuda, SMI, None, None, ())


def _out(answer: Answer) -> str:
    return "" if answer.why else answer.out


def _with_cuda(gpus: Gpus, python: str, run: Ask, unread: list[Unread]) -> Gpus:
    """Add what CUDA's driver tells, where it shows as many GPUs: a part of them would be numbered otherwise."""
    told, why = ask_program("cuda.py", python=python, run=run)
    if not why and len(told["cards"]) != len(gpus.cards):
        why = f"it shows {len(told['cards'])} of {len(gpus.cards)} GPUs"
    if why:
        unread.append(Unread("NVLink multicast", f"the CUDA driver: {why}"))
        return gpus
    cards = [_with_attributes(card, more) for card, more in zip(gpus.cards, told["cards"], strict=True)]
    return replace(gpus, cards=cards, cuda=gpus.cuda or told.get("cuda"), peers=_peers(told["peers"]))


def _with_attributes(card: Card, told: Mapping[str, int | None]) -> Card:
    major, minor, multicast = told["major"], told["minor"], told["multicast"]
    capability = 10 * major + minor if major is not None and minor is not None else None
    return replace(
        card,
        compute_capability=card.compute_capability or capability,
        multicast=None if multicast is None else bool(multicast),
    )


def _peers(told: Sequence[Sequence[int | None]]) -> Mapping[Pair, str] | None:
    found: dict[Pair, str] = {}
    for one, other, can in told:
        if one is not None and other is not None and can is not None:
            pair = (min(one, other), max(one, other))
            found[pair] = "OK" if can and found.get(pair, "OK") == "OK" else "NS"
    return found or None


def _topology(run: Ask, unread: list[Unread]) -> Topology | None:
    answer = run(SMI, "topo", "-m")
    why = answer.why
    try:
        if not why:
            return parse_topology(answer.out)
    except ValueError as error:
        why = f"nvidia-smi topo -m: {error}"
    unread.append(Unread("the topology", why))
    return None
