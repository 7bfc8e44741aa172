"""Rules about what lies between GPUs: topology, NVLinks, peers, fabric, multicast, IMEX. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.doctor.facts import Card, Machine
from trtllm_kit.doctor.rule import ERROR, INFO, WARNING, Told, each, names
from trtllm_kit.doctor.smi_text import LEGEND
from trtllm_kit.doctor.topology import OddPair, Topology, islands, odd_pairs
from trtllm_kit.doctor.wanted import Wanted

SPANNING = ("GB200", "GB300", "GH200")
"""Cards whose NVLink can span nodes."""
HOPPER = 90
_FEW = 6


def odd(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Name the pair that lacks the NVLinks of the others: every all-reduce goes at its pace."""
    topology = machine.topology
    found = odd_pairs(topology) if topology else []
    if not topology or not found:
        return
    alone = _common(found)
    who = f"GPU {alone} is" if alone is not None and len(found) > 1 else f"{_pairs(found)} are"
    mesh = sum(bool(topology.nvlinks(pair)) for pair in topology.links) * 2 > len(topology.links)
    yield (
        ERROR if mesh else WARNING,
        f"{who} joined by less NVLink than the others",
        (f"{_pairs(found, cells=True)}; others {found[0].others}"),
        "look at nvidia-smi nvlink -s of both ends, then at the bridge, the fabric manager's log or the board",
    )


def _pairs(found: list[OddPair], *, cells: bool = False) -> str:
    shown = [f"GPU {one.pair[0]} and {one.pair[1]}" + (f": {one.has}" if cells else "") for one in found[:_FEW]]
    return ", ".join(shown) + (f" and {len(found) - _FEW} more" if len(found) > _FEW else "")


def _common(found: list[OddPair]) -> int | None:
    """Return the GPU that all odd pairs share."""
    shared = set.intersection(*(set(one.pair) for one in found))
    return next(iter(shared)) if len(shared) == 1 else None


def no_nvlink(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Where GPUs reach each other over PCIe alone, tensor ranks wait for it in every layer."""
    topology = machine.topology
    if topology is None:
        return
    groups = islands(topology)
    if len(groups[0]) == 1:
        ways = ", ".join(sorted(set(topology.links.values())))
        yield (
            INFO,
            f"no NVLink joins the {len(topology.gpus)} GPUs",
            f"ways between them: {ways}",
            ("prefer replicas or pipeline ranks to tensor ranks; trtkit estimate shows the difference"),
        )
    elif len(groups) > 1:
        shown = "; ".join(", ".join(map(str, group)) for group in groups)
        yield (
            INFO,
            f"NVLink joins the GPUs in {len(groups)} groups",
            f"groups: {shown}",
            (f"keep parallelism.tensor at {len(groups[-1])} or less, and ranks of one replica within a group"),
        )


def link_states(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Name GPUs with fewer NVLinks up than the others have."""
    most = max((card.links_up or 0 for card in machine.cards), default=0)
    short = [card for card in machine.cards if card.links_up is not None and card.links_up < most]
    if short:
        yield (
            ERROR,
            f"{names(short)} has NVLinks down",
            each(short, lambda card: f"{card.links_up} of {most} up"),
            ("nvidia-smi nvlink -s -i GPU; then look at the board and the fabric manager's log"),
        )


def link_errors(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Recoveries interrupt all traffic of a link; replays and checksum errors are its first sign."""
    recovered = [card for card in machine.cards if card.link_errors.get("recovery")]
    if recovered:
        yield (
            WARNING,
            f"NVLinks of {names(recovered)} had to recover",
            each(recovered, _errors),
            ("trtkit check-health --nvml tells when they grow; nvidia-smi nvlink -e which link it is"),
        )
    others = [card for card in machine.cards if any(card.link_errors.values()) and card not in recovered]
    if others:
        yield (
            INFO,
            f"NVLinks of {names(others)} sent again",
            each(others, _errors),
            ("trtkit check-health --nvml tells when they grow"),
        )


def _errors(card: Card) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in card.link_errors.items() if count)


def peers(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """GPUs that do not read each other's memory send through the host's."""
    bad = {pair: why for pair, why in (machine.peers or {}).items() if why != "OK"}
    if not bad:
        return
    linked = [pair for pair in bad if machine.topology and machine.topology.nvlinks(pair)]
    shown = ", ".join(f"GPU {one} and {other}" for one, other in list(bad)[:_FEW])
    why = "; ".join(sorted({LEGEND.get(word, word) for word in bad.values()}))
    yield (
        ERROR if linked else WARNING,
        f"{len(bad)} of {len(machine.peers or {})} pairs have no peer access",
        (f"{shown}: {why}"),
        (
            "look at MIG mode and at the fabric manager"
            if linked
            else "look at ACS and the IOMMU; NCCL_P2P_DISABLE=1 keeps NCCL from hanging there"
        ),
    )


def fabric(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """On NVSwitch machines CUDA starts only when the GPUs are registered with the fabric."""
    waiting = [card for card in machine.cards if card.fabric in ("in progress", "not started")]
    if waiting:
        yield (
            ERROR,
            f"{names(waiting)} is not registered with the NVLink fabric",
            each(waiting, lambda card: card.fabric),
            "start nvidia-fabricmanager of the driver's very version; nvidia-smi -q shows Fabric",
        )
    failed = [
        card for card in machine.cards if card.fabric == "completed" and card.fabric_status not in (None, "success")
    ]
    if failed:
        yield (
            ERROR,
            f"{names(failed)} could not join the NVLink fabric",
            each(failed, lambda card: card.fabric_status),
            "read the fabric manager's log; reset the GPU",
        )
    daemons = machine.host.daemons
    if machine.host.nvswitches and daemons and not daemons["nv-fabricmanager"] and not machine.host.container:
        yield (
            ERROR,
            f"{machine.host.nvswitches} NVSwitches are here and no fabric manager runs",
            ("nv-fabricmanager: not running"),
            "systemctl start nvidia-fabricmanager",
        )


def multicast(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """NVLS adds up in the switches; where the driver does not offer it, NCCL and engines do without."""
    meant = wanted.hardware is not None and wanted.hardware.nvlink_multicast and len(machine.cards) > 1
    capable = [card for card in machine.cards if (card.compute_capability or 0) >= HOPPER]
    without = [card for card in capable if card.multicast is False]
    switched = machine.topology is not None and len(capable) >= 4 and _is_mesh(machine.topology)
    if without and (meant or switched):
        yield (
            WARNING,
            f"{names(without)} has no NVLink multicast (NVLS)",
            "multicast: not offered by the driver",
            ("look at the fabric manager and, in a virtual machine, at its partition; NCCL_NVLS_ENABLE=0 until then"),
        )


def _is_mesh(topology: Topology) -> bool:
    return all(topology.nvlinks(pair) for pair in topology.links)


def imex(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Memory of GPUs of other nodes is mapped through IMEX, which needs its daemon and a channel."""
    spans = wanted.hardware is not None and wanted.hardware.nvlink_domain > wanted.hardware.gpus_per_node
    named = [card for card in machine.cards if any(word in card.name for word in SPANNING)]
    joined = [card for card in named if card.fabric == "completed"]
    if not machine.cards or not (spans or joined):
        return
    runs = (machine.host.daemons or {}).get("nvidia-imex")
    if not machine.host.imex_channels or (runs is False and not machine.host.container):
        told = f"channels: {machine.host.imex_channels or 0}, nvidia-imex: {'running' if runs else 'not seen'}"
        yield (
            WARNING if spans else INFO,
            "NVLink to other nodes is not ready (IMEX)",
            told,
            ("systemctl start nvidia-imex on every node of nodes_config.cfg; nvidia-imex-ctl -N"),
        )


def switch_errors(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Judge what the kernel's log says of NVSwitches: a fatal error stops what runs on all GPUs behind the switch."""
    for severity, found in (
        (ERROR, [one for one in machine.host.switch_errors if one.fatal]),
        (WARNING, [one for one in machine.host.switch_errors if not one.fatal]),
    ):
        if found:
            kind = "fatal errors" if severity is ERROR else "errors"
            yield (
                severity,
                f"NVSwitch {', '.join(one.switch for one in found)} had {kind}",
                "; ".join(f"{one.fatal} fatal, {one.others} others, the last: {one.last}" for one in found),
                "look the number up in the fabric manager's guide; a fatal one wants GPUs and switches reset",
            )


def rdma(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Want an active RDMA port where ranks span nodes; name ports that are down beside others that are up."""
    ports = machine.host.rdma
    up, down = [one for one in ports if one.active], [one for one in ports if not one.active]
    spans = wanted.hardware is not None and wanted.hardware.nodes > 1
    if spans and not up:
        yield (
            WARNING,
            "the profile's hardware spans nodes, and no RDMA port is active here",
            f"ports: {', '.join(one.name for one in down) or 'none under /sys/class/infiniband'}",
            "load the adapter's driver and mount its devices into the container; NCCL goes over TCP until then",
        )
    elif up and down:
        yield (
            INFO,
            f"{len(down)} of {len(ports)} RDMA ports are not active",
            ", ".join(one.name for one in down[:_FEW]) + (f" and {len(down) - _FEW} more" if len(down) > _FEW else ""),
            "ibstat shows why; NCCL_IB_HCA names those that NCCL may use",
        )
