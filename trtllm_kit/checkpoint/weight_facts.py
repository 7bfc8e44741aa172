"""What a folder's index, file sizes and headers say, for rules that need no weight: cheap for any size of model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path

from trtllm_kit.checkpoint.header import INDEX, read_header
from trtllm_kit.errors import KitError
from trtllm_kit.files import UnfitFile, open_file, read_file
from trtllm_kit.plan.given.facts import Extent, WeightFacts
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.strict_json import parse_json

_POINTER = b"version https://git-lfs"
_LARGEST_POINTER = 1024
_LENGTH_BYTES = 8
_MOST_HEADER = 100_000_000
_ENDS = rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d{1,19})\s*\]'
"""The end of a tensor; within a name or a text of the header its quotes would be escaped."""


def weight_facts(folder: Path, model: ModelSpec) -> WeightFacts | None:
    """Return what is known of a folder's weights; None for one without safetensors or an index that can be read.

    What cannot be read is left to the verbs that read weights, whose errors say why.
    """
    try:
        return _facts(folder, model)
    except (OSError, ValueError, UnfitFile):
        return None


def _facts(folder: Path, model: ModelSpec) -> WeightFacts | None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.safetensors")) if path.is_file()}
    indexed, total = _index(folder / INDEX)
    if not sizes and indexed is None:
        return None
    small = (name for name, size in sizes.items() if size <= _LARGEST_POINTER)
    pointers = frozenset(name for name in small if _is_pointer(folder / name))
    whole = {name for name, size in sizes.items() if size and name not in pointers}
    wanted = _files_of(indexed, (f"{model.prefix}embed_tokens.weight", model.head_name)) or set(list(sizes)[:1])
    return WeightFacts(sizes, pointers, indexed, total, _shapes(folder, wanted & whole), _extents(folder, whole))


def _index(path: Path) -> tuple[dict[str, str] | None, int | None]:
    """Return tensor -> file and the bytes of all tensors; None without an index."""
    if not path.exists():
        return None, None
    document = parse_json(read_file(path))
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise ValueError("no weight_map")
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return weight_map, total if isinstance(total, int) and not isinstance(total, bool) else None


def _is_pointer(path: Path) -> bool:
    with open_file(path) as file:
        return file.read(len(_POINTER)) == _POINTER


def _files_of(indexed: Mapping[str, str] | None, names: tuple[str, ...]) -> set[str]:
    return {indexed[name] for name in names if name in indexed} if indexed else set()


def _extents(folder: Path, files: Iterable[str]) -> dict[str, Extent]:
    """Return how long each file is by its header; one whose header makes no sense is left to ``convert``."""
    found = ((name, _extent(folder / name)) for name in sorted(files))
    return {name: extent for name, extent in found if extent is not None}


def _extent(path: Path) -> Extent | None:
    with BufferedReader(open_file(path)) as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if not 2 <= length <= _MOST_HEADER:
            return None
        text = file.read(length)
    ends = [int(found[1]) for found in re.finditer(_ENDS, text)]
    return Extent(header=_LENGTH_BYTES + length, data=max(ends, default=0) if len(text) == length else 0)


def _shapes(folder: Path, files: set[str]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name in sorted(files):
        try:
            shapes |= {tensor.name: tensor.shape for tensor in read_header(folder / name).tensors.values()}
        except KitError:
            continue  # convert refuses the file with what is wrong in it
    return shapes
