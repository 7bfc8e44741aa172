"""``nvidia-smi topo -m``: the matrix, the odd pair, and machines where nothing is odd."""

from __future__ import annotations

import pytest

from tests.doctor.support import recorded
from trtllm_kit.doctor.topology import islands, odd_pairs, parse_topology, sockets


def test_a_real_pair_of_h200_is_read() -> None:
    """What a machine with two H200s printed, colour codes and empty columns included."""
    topology = parse_topology(recorded("h200x2.topo.txt"))
    assert {(0, 1): "NV18"} == topology.links
    assert {0: "0", 1: "0"} == topology.numa
    assert {0: "0-31", 1: "0-31"} == topology.cores


def test_adapters_are_named_by_the_legend() -> None:
    """NIC3 of the matrix is the adapter that the legend under it names, and each GPU's way to it is kept."""
    topology = parse_topology(recorded("h200x8.topo.txt"))
    assert 8 == len(topology.nics)
    assert "PIX" == topology.nics["mlx5_3"][3]
    assert "SYS" == topology.nics["mlx5_3"][4]
    assert 2 == sockets(topology)


@pytest.mark.parametrize(
    ("file", "odd"),
    [
        ("h200x8-odd-pair.topo.txt", [(2, 5)]),
        ("h200x8-odd-gpu.topo.txt", [(0, 3), (1, 3), (2, 3), (3, 4), (3, 5), (3, 6), (3, 7)]),
        ("a40x4-bridge-missing.topo.txt", [(2, 3)]),
    ],
)
def test_the_odd_pair_is_named(file: str, odd: list[tuple[int, int]]) -> None:
    """Of each machine exactly the pairs that lack the NVLinks others have."""
    assert odd == [one.pair for one in odd_pairs(parse_topology(recorded(file)))]


def test_two_gpus_that_lack_links_to_all_others_are_odd_with_every_one() -> None:
    """GPU 1 and 6 with fewer links each: all their pairs are odd, and not the one between them alone."""
    text = recorded("h200x8.topo.txt").splitlines()
    for line, own in enumerate(text[1:9]):
        cells = line_cells = own.split("\t")
        cells = [line_cells[0]] + [
            "NV16" if cell == "NV18" and (line in (1, 6) or other in (1, 6)) else cell
            for other, cell in enumerate(line_cells[1:])
        ]
        text[line + 1] = "\t".join(cells)
    assert 13 == len(odd_pairs(parse_topology("\n".join(text))))


@pytest.mark.parametrize(
    "file",
    ["h200x2.topo.txt", "h200x8.topo.txt", "l40sx8.topo.txt", "a40x4-bridges.topo.txt", "v100x8-cube.topo.txt",
     "gb200x4.topo.txt"],
)  # fmt: skip
def test_sound_machines_have_no_odd_pair(file: str) -> None:
    """Meshes, PCIe boxes with two sockets, bridged pairs and cube meshes are as they are made."""
    assert [] == odd_pairs(parse_topology(recorded(file)))


@pytest.mark.parametrize(
    ("file", "groups"),
    [
        ("h200x8.topo.txt", [(0, 1, 2, 3, 4, 5, 6, 7)]),
        ("a40x4-bridges.topo.txt", [(0, 1), (2, 3)]),
        ("h200x8-odd-gpu.topo.txt", [(0, 1, 2, 4, 5, 6, 7), (3,)]),
        ("v100x8-cube.topo.txt", [(0, 1, 2, 3, 4, 5, 6, 7)]),
    ],
)
def test_groups_that_nvlink_joins(file: str, groups: list[tuple[int, ...]]) -> None:
    """GPUs are in one group when a way of NVLinks alone leads from one to the other."""
    assert groups == islands(parse_topology(recorded(file)))


@pytest.mark.parametrize("text", ["", "no devices", "\tGPU0\tGPU1\nGPU0\t X \n"])
def test_what_is_no_matrix_is_refused(text: str) -> None:
    """An empty answer, an error's words and a matrix that was cut short are no topology."""
    with pytest.raises(ValueError, match="GPU"):
        parse_topology(text)
