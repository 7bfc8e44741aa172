"""A hardware profile in a file of its own: what ``trtkit doctor --write-hardware`` writes and ``hardware:`` may name.

The document is a machine of the catalogue with its card spelt out; ``gpu.ceilings`` may hold what was measured of the
card in place of the constants that its architecture has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trtllm_kit.errors import UnknownHardware
from trtllm_kit.spec.ceilings import card_constants
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.yaml_tree import read_document

_WRITE = "`trtkit doctor --write-hardware FILE` writes one"


def read_hardware(path: str) -> Hardware:
    """Return the hardware of a file, named by its path.

    Raises ``UnknownHardware`` for a file that is none, ``StorageError`` for one that cannot be read.
    """
    document = read_document(Path(path).expanduser(), path)
    problems = [str(one) for one in document.problems]
    if not problems:
        try:
            hardware = Hardware.model_validate(document.data | {"name": path})
            problems = list(_wrong(hardware))
        except ValueError as error:
            problems = [f"{path}: {error}"]
    if problems:
        raise UnknownHardware(f"no hardware profile in {path}", why="; ".join(problems[:3]), hint=_WRITE)
    return hardware


def _wrong(hardware: Hardware) -> Iterator[str]:
    """Name counts and ceilings that no machine has."""
    if min(hardware.gpus_per_node, hardware.nodes, hardware.nvlink_domain) < 1:
        yield "gpus_per_node, nodes and nvlink_domain are at least 1"
    for name, one in hardware.gpu.ceilings.items():
        if name not in card_constants():
            yield f"gpu.ceilings has no {name}; it takes {', '.join(card_constants())}"
        elif not 0 < one.low <= one.value <= one.high:
            yield f"gpu.ceilings.{name} wants 0 < low <= value <= high, not {one.low}, {one.value}, {one.high}"
