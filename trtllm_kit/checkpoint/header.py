"""Reads the header of one safetensors file, and refuses a file whose header and size disagree.

The format: eight bytes with the header's length (little endian), a JSON object that gives each tensor's dtype,
shape and byte range, then the data without gaps.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trtllm_kit.errors import WeightFileError, storage_error

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1",
        "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
        "BOOL": "u1",
    }.items()
}  # fmt: skip
"""How each dtype is held in numpy; formats numpy has no type for are held as their bits."""

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
_LFS = b"version https://git-lfs"


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies."""

    name: str
    dtype: str
    """As safetensors spells it: ``BF16``, ``F8_E4M3`` ..."""
    shape: tuple[int, ...]
    file: Path
    begin: int
    """First byte in the file."""
    nbytes: int


@dataclass(frozen=True)
class FileHeader:
    """What one file holds."""

    path: Path
    tensors: dict[str, StoredTensor]
    size: int
    """Of the whole file, bytes."""
    data_begin: int
    sha256: str
    """Of the header alone."""


def read_header(path: Path) -> FileHeader:
    """Read and check the header; raises ``WeightFileError`` or, when the system refuses, ``StorageError``."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(max(_LENGTH_BYTES, len(_LFS)))
            length = _header_length(path, start, size)
            file.seek(_LENGTH_BYTES)
            text = file.read(length)
    except OSError as error:
        raise storage_error(error, "reading a weight file") from None
    data_begin = _LENGTH_BYTES + length
    tensors = _parse(path, text, data_begin)
    _check_ranges(path, tensors, data_begin, size)
    return FileHeader(path, tensors, size, data_begin, hashlib.sha256(text).hexdigest())


def _header_length(path: Path, start: bytes, size: int) -> int:
    if start.startswith(_LFS):
        raise WeightFileError(
            f"{path} is a git-LFS pointer of {size} bytes, not weights",
            why="the repository was cloned without git-lfs, which leaves a text file where the weights belong",
            hint=f"git -C {path.parent} lfs pull",
        )
    if len(start) < _LENGTH_BYTES:
        raise _broken(path, f"it holds {size} bytes, and the header's length alone takes {_LENGTH_BYTES}")
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length > _MAX_HEADER_BYTES or length < 2:
        raise _broken(
            path, f"its first 8 bytes promise a header of {length} bytes; 2 to {_MAX_HEADER_BYTES} make sense"
        )
    if _LENGTH_BYTES + length > size:
        raise _truncated(path, size, _LENGTH_BYTES + length)
    return length


def _parse(path: Path, text: bytes, data_begin: int) -> dict[str, StoredTensor]:
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"its header is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _broken(path, f"its header is a JSON {type(document).__name__}, not an object")
    document.pop("__metadata__", None)
    return {name: _tensor(path, name, entry, data_begin) for name, entry in document.items()}


def _tensor(path: Path, name: str, entry: Any, data_begin: int) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        whole = all(isinstance(number, int) and number >= 0 for number in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        raise _broken(path, f"tensor {name} has no dtype, shape and data_offsets") from None
    if not whole or begin > end:
        raise _broken(path, f"tensor {name} has shape {list(shape)} and bytes {begin} to {end}")
    if dtype not in NUMPY_TYPES:
        raise _broken(path, f"tensor {name} has dtype {dtype}; the kit knows {', '.join(NUMPY_TYPES)}")
    expected = math.prod(shape) * NUMPY_TYPES[dtype].itemsize
    if end - begin != expected:
        raise _broken(path, f"tensor {name} of {dtype} {list(shape)} needs {expected} bytes, and has {end - begin}")
    return StoredTensor(name, dtype, shape, path, data_begin + begin, end - begin)


def _check_ranges(path: Path, tensors: dict[str, StoredTensor], data_begin: int, size: int) -> None:
    """Refuse overlaps, gaps, a file that ends early and one that goes on after its last tensor."""
    at, last = data_begin, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.begin, tensor.nbytes)):
        if tensor.begin != at:
            kind = "overlaps" if tensor.begin < at else "leaves a gap after"
            raise _broken(
                path, f"tensor {tensor.name} starts at byte {tensor.begin} and {kind} {last}, which ends at {at}"
            )
        at, last = tensor.begin + tensor.nbytes, f"tensor {tensor.name}"
    if size < at:
        raise _truncated(path, size, at)
    if size > at:
        raise _broken(path, f"it holds {size} bytes, and its header describes {at}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _broken(path: Path, why: str) -> WeightFileError:
    return WeightFileError(f"{path} is not a sound safetensors file", why=why, hint="download that file again")


def _truncated(path: Path, size: int, expected: int) -> WeightFileError:
    return WeightFileError(
        f"{path} is truncated", why=f"it holds {size} bytes, and its header promises {expected}",
        hint="download that file again; check the disk's free space first",
    )  # fmt: skip
