"""How the GPUs of a machine reach each other: ``nvidia-smi topo -m`` as a matrix, and the pair that is off. Pure.

A cell is ``NV#`` (that many NVLinks), or the farthest thing on the way: ``PIX`` one PCIe bridge, ``PXB`` several,
``PHB`` the host bridge, ``NODE`` another one of the same socket, ``SYS`` the link between sockets. The words are those
of the legend that the program prints.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from trtllm_kit.light import dataclass

PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first."""
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d+)$")
_NIC = re.compile(r"(NIC\d+|mlx\d+_\d+)$")
_NVLINK = re.compile(r"NV(\d+)$")
Pair = tuple[int, int]


@dataclass(frozen=True)
class Topology:
    """The matrix, of GPUs by number."""

    links: Mapping[Pair, str]
    """Of each pair, the smaller number first, the cell."""
    gpus: Sequence[int]
    numa: Mapping[int, str]
    """NUMA nodes that are near each GPU, as they are printed; one that is not told is left out."""
    nics: Mapping[str, Mapping[int, str]]
    """Of each network adapter, how each GPU reaches it."""
    cores: Mapping[int, str] = field(default_factory=dict)
    """CPU cores near each GPU, as they are printed."""

    def nvlinks(self, pair: Pair) -> int:
        """Return how many NVLinks join a pair; 0 for none."""
        found = _NVLINK.match(self.links.get((min(pair), max(pair)), ""))
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class OddPair:
    """A pair whose way is worse than what most pairs have."""

    pair: Pair
    has: str
    others: str
    """What most pairs have."""


def parse_topology(text: str) -> Topology:
    """Read the matrix; raises ``ValueError`` for a text that is none."""
    rows = [_cells(line) for line in _CODES.sub("", text).splitlines()]
    head = next((row for row in rows if any(_GPU.match(cell) for cell in row)), None)
    if head is None:
        raise ValueError("there is no line with the names of the GPUs")
    names = [cell for cell in head if _GPU.match(cell) or _NIC.match(cell)]
    body = [row for row in rows[rows.index(head) + 1 :] if row and (_GPU.match(row[0]) or _NIC.match(row[0]))]
    links: dict[Pair, str] = {}
    nics: dict[str, dict[int, str]] = {}
    numa, cores = dict[int, str](), dict[int, str]()
    for row in body:
        found = _GPU.match(row[0])
        cells = dict(zip(names, row[1:], strict=False))
        if len(cells) < len(names):
            raise ValueError(f"the line of {row[0]} has {len(cells)} cells, and there are {len(names)} names")
        if found is None:
            continue
        number, extra = int(found[1]), row[1 + len(names) :]
        _take_row(number, cells, links, nics)
        cores |= {number: extra[0]} if extra and extra[0] != "N/A" else {}
        numa |= {number: extra[1]} if len(extra) > 1 and extra[1] != "N/A" else {}
    gpus = sorted(int(found[1]) for row in body if (found := _GPU.match(row[0])))
    if not gpus:
        raise ValueError("there is no line of a GPU")
    legend = _legend(_CODES.sub("", text))
    return Topology(links, gpus, numa, {legend.get(name, name): ways for name, ways in nics.items()}, cores)


def _take_row(number: int, cells: Mapping[str, str], links: dict[Pair, str], nics: dict[str, dict[int, str]]) -> None:
    for name, cell in cells.items():
        other = _GPU.match(name)
        if other is None:
            nics.setdefault(name, {})[number] = cell
        elif int(other[1]) != number:
            pair = (min(number, int(other[1])), max(number, int(other[1])))
            links[pair] = _worse(links.get(pair, cell), cell)


def _cells(line: str) -> list[str]:
    """Split a line at its tabs; words within a cell stay together (``CPU Affinity``)."""
    if "\t" in line:
        cells = [cell.strip() for cell in line.split("\t")]
        while cells and not cells[0]:
            cells.pop(0)
        return cells
    return line.split()


def _legend(text: str) -> dict[str, str]:
    """Return the adapters by the numbers that the legend gives them."""
    return dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)", text, re.MULTILINE))


def rank(cell: str) -> int:
    """Return how good a way is, larger for better; two kinds of PCIe way are one step apart."""
    found = _NVLINK.match(cell)
    if found:
        return 100 + int(found[1])
    return len(PCIE) - PCIE.index(cell) if cell in PCIE else 0


def _worse(one: str, other: str) -> str:
    return min(one, other, key=rank)


def odd_pairs(topology: Topology) -> list[OddPair]:
    """Return the pairs that lack NVLinks which others have.

    Where all GPUs have as many NVLinks in total, nothing is odd: bridged pairs and cube meshes are made so. In a mesh,
    where most pairs have the same number, every pair with fewer is odd; among bridged pairs those between GPUs that
    both lack theirs.
    """
    linked = {pair: topology.nvlinks(pair) for pair in topology.links}
    total = {gpu: sum(count for pair, count in linked.items() if gpu in pair) for gpu in topology.gpus}
    if len(set(total.values())) == 1:
        return []
    usual = Counter(linked.values()).most_common(1)[0][0]
    mesh = usual > 0
    if not mesh:
        usual = Counter(count for count in linked.values() if count).most_common(1)[0][0]
    poor = {gpu for gpu, count in total.items() if count < max(total.values())}
    return [
        OddPair(pair, topology.links[pair], f"NV{usual}")
        for pair, count in sorted(linked.items())
        if count < usual and (mesh or set(pair) <= poor)
    ]


def islands(topology: Topology) -> list[tuple[int, ...]]:
    """Return the groups of GPUs that reach each other over NVLink alone, largest first."""
    left, found = set(topology.gpus), list[tuple[int, ...]]()
    while left:
        group, pending = set[int](), [min(left)]
        while pending:
            gpu = pending.pop()
            group.add(gpu)
            pending += [one for one in left - group if topology.nvlinks((gpu, one))]
        left -= group
        found.append(tuple(sorted(group)))
    return sorted(found, key=lambda one: (-len(one), one))


def sockets(topology: Topology) -> int:
    """Return how many NUMA nodes the GPUs are near to; 0 where it is not told."""
    return len(set(topology.numa.values()))
