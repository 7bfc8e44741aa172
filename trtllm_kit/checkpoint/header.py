"""Reads the header of one safetensors file, and refuses a file whose header and size disagree.

The format: eight bytes with the header's length (little endian), a JSON object that gives each tensor's dtype,
shape and byte range, then the data without gaps.
"""

from __future__ import annotations

import math
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from trtllm_kit.errors import WeightFileError, storage_error
from trtllm_kit.files import Stamp, UnfitFile, open_file, stamp_of
from trtllm_kit.light import dataclass
from trtllm_kit.strict_json import parse_json

INDEX = "model.safetensors.index.json"
HELD_AS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
    "BOOL": "u1",
}  # fmt: skip
"""How each dtype is held, in numpy's codes; formats numpy has no type for are held as their bits."""

_LENGTH_BYTES = 8
_MOST_NUMBER = 2**63 - 1
"""Sizes and offsets are 64-bit numbers."""
_MOST_DIMENSIONS = 32
"""What every release of numpy can hold."""
_SHOWN = 200
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
    stamp: Stamp
    """Of the file when its header was read."""


@dataclass(frozen=True)
class FileHeader:
    """What one file holds."""

    path: Path
    tensors: dict[str, StoredTensor]
    size: int
    """Of the whole file, bytes."""
    data_begin: int
    stamp: Stamp


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element of a dtype as safetensors spells it."""
    return int(HELD_AS[dtype][-1])


def read_header(path: Path) -> FileHeader:
    """Read and check the header; raises ``WeightFileError`` or, when the system refuses, ``StorageError``."""
    try:
        raw = open_file(path)
        with BufferedReader(raw) as file:
            stamp = stamp_of(raw)
            size = stamp.size
            start = file.read(max(_LENGTH_BYTES, len(_LFS)))
            length = _header_length(path, start, size)
            file.seek(_LENGTH_BYTES)
            text = file.read(length)
    except UnfitFile as error:
        raise _broken(path, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading a weight file") from None
    data_begin = _LENGTH_BYTES + length
    tensors = _parse(path, text, stamp)
    _check_ranges(path, tensors, data_begin, size)
    return FileHeader(path, tensors, size, data_begin, stamp)


def reopen(path: Path, stamp: Stamp) -> FileIO:
    """Open a weight file whose header was read before; raises ``WeightFileError`` when it has changed since.

    Every read goes through here: a file renamed into its place gives other weights without a word otherwise.
    """
    file = open_file(path)
    now = stamp_of(file)
    if now == stamp:
        return file
    file.close()
    if (now.device, now.inode) != (stamp.device, stamp.inode):
        raise changed(path, f"another file was put into its place (inode {now.inode}, before {stamp.inode})")
    if now.size != stamp.size:
        raise changed(path, f"it holds {now.size} bytes, and held {stamp.size}")
    raise changed(path, f"it was written to {(now.modified_ns - stamp.modified_ns) / 1e9:+.3f} s from its earlier time")


def changed(path: Path, why: str) -> WeightFileError:
    """Say that a file of the source is no longer the one that was checked."""
    return WeightFileError(
        f"{path} changed during the run",
        why=why,
        hint="leave the source alone until trtkit has read it, then run again",
    )


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


def _parse(path: Path, text: bytes, stamp: Stamp) -> dict[str, StoredTensor]:
    try:
        document = parse_json(text)
    except ValueError as error:
        raise _broken(path, f"its header is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _broken(path, f"its header is a JSON {type(document).__name__}, not an object")
    document.pop("__metadata__", None)
    data_begin = _LENGTH_BYTES + len(text)
    found: dict[str, StoredTensor] = {}
    for name, entry in document.items():
        dtype, shape, begin, end = _entry(path, name, entry)
        found[name] = StoredTensor(name, dtype, shape, path, data_begin + begin, end - begin, stamp)
    return found


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Return dtype, shape, and the range of bytes within the data."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise _broken(path, f"tensor {_cut(name)} has no dtype, shape and data_offsets") from None
    if not all(type(number) is int and 0 <= number <= _MOST_NUMBER for number in (*shape, begin, end)) or begin > end:
        raise _broken(path, f"tensor {_cut(name)} has shape {_cut(list(shape))}, bytes {_cut(begin)} to {_cut(end)}")
    if len(shape) > _MOST_DIMENSIONS:
        raise _broken(path, f"tensor {_cut(name)} has {len(shape)} dimensions, and can have {_MOST_DIMENSIONS}")
    if not isinstance(dtype, str) or dtype not in HELD_AS:
        raise _broken(path, f"tensor {_cut(name)} has dtype {_cut(dtype)}; the kit knows {', '.join(HELD_AS)}")
    needed = math.prod(shape) * item_bytes(dtype)
    if end - begin != needed:
        raise _broken(path, f"tensor {_cut(name)} of {dtype} {list(shape)} needs {needed} bytes, and has {end - begin}")
    return dtype, shape, begin, end


def _cut(value: object) -> str:
    """Spell a value from the file at a readable length."""
    text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


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


def _broken(path: Path, why: str) -> WeightFileError:
    return WeightFileError(f"{path} is not a sound safetensors file", why=why, hint="download that file again")


def _truncated(path: Path, size: int, expected: int) -> WeightFileError:
    return WeightFileError(
        f"{path} is truncated", why=f"it holds {size} bytes, and its header promises {expected}",
        hint="download that file again; check the disk's free space first",
    )  # fmt: skip
