"""Headers of safetensors files, sound and broken."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_model import write_safetensors
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.errors import KitError, StorageError, WeightFileError


def raw_file(path: Path, header: Any, data: bytes = b"") -> Path:
    """Write a file with any JSON header and any data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str = "F32", shape: tuple[int, ...] = (2,), offsets: tuple[int, int] = (0, 8)) -> dict[str, Any]:
    """Describe one tensor."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_a_sound_file_gives_every_tensor_with_its_place(tmp_path: Path) -> None:
    """Dtype, shape, first byte and length are those of the file."""
    path = tmp_path / "w.safetensors"
    write_safetensors(path, {"a": np.ones((2, 3), np.float32), "b": np.ones(5, np.float32)})
    header = read_header(path)
    assert ["a", "b"] == list(header.tensors)
    assert ("BF16", (2, 3), 12) == (header.tensors["a"].dtype, header.tensors["a"].shape, header.tensors["a"].nbytes)
    assert header.tensors["a"].begin + 12 == header.tensors["b"].begin
    assert path.stat().st_size == header.size == header.tensors["b"].begin + 10


def test_a_git_lfs_pointer_is_named_with_the_command_that_helps(tmp_path: Path) -> None:
    """The most common broken checkpoint is a clone without git-lfs."""
    path = tmp_path / "w.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n")
    with pytest.raises(WeightFileError, match="git-LFS pointer") as caught:
        read_header(path)
    assert f"git -C {tmp_path} lfs pull" == caught.value.hint


def test_a_truncated_file_says_both_sizes(tmp_path: Path) -> None:
    """The header promises more bytes than the file holds."""
    path = raw_file(tmp_path / "w.safetensors", {"a": entry()}, b"\0" * 5)
    size = path.stat().st_size
    with pytest.raises(WeightFileError, match=f"holds {size} bytes, and its header promises {size + 3}"):
        read_header(path)


@pytest.mark.parametrize("length", [0, 5, 40])
def test_a_file_cut_inside_its_header_is_truncated(tmp_path: Path, length: int) -> None:
    """Down to the empty file nothing but the kit's error comes out."""
    path = raw_file(tmp_path / "w.safetensors", {"a": entry()}, b"\0" * 8)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(WeightFileError):
        read_header(path)


BROKEN: dict[str, tuple[Any, bytes, str]] = {
    "insane length": (b"", b"", "2 to 100000000"),
    "no JSON": (b"{abc}", b"", "not JSON"),
    "not UTF-8": (b'{"\xff": 1}', b"", "not JSON"),
    "a list": ([1, 2], b"", "JSON list"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [2]}}, b"\0" * 8, "no dtype, shape"),
    "negative shape": ({"a": entry(shape=(-2,))}, b"\0" * 8, "shape"),
    "text for a size": ({"a": entry() | {"shape": ["2"]}}, b"\0" * 8, "shape"),
    "unknown dtype": ({"a": entry(dtype="F4")}, b"\0" * 8, "dtype F4"),
    "a size of 64 bits": ({"a": entry(shape=(2**63, 0), offsets=(0, 0))}, b"", "shape"),
    "true for a size": (b'{"a": {"dtype": "U8", "shape": [true], "data_offsets": [0, 1]}}', b"\0", "shape"),
    "a list for a dtype": ({"a": entry() | {"dtype": []}}, b"\0" * 8, r"dtype \[\]; the kit knows"),
    "a mapping for a dtype": ({"a": entry() | {"dtype": {}}}, b"\0" * 8, r"dtype \{\}; the kit knows"),
    "text for an entry": ({"a": "dtype"}, b"\0" * 8, "no dtype, shape"),
    "nested without end": (b"[" * 100_000, b"", "nested deeper"),
    "half of a surrogate pair": (rb'{"\ud800": {}}', b"", "surrogate"),
    "wrong byte count": ({"a": entry(shape=(3,))}, b"\0" * 8, "needs 12 bytes, and has 8"),
    "reversed offsets": ({"a": entry(shape=(0,), offsets=(8, 0))}, b"\0" * 8, "bytes 8 to 0"),
    "overlap": ({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12, "overlaps"),
    "gap": ({"a": entry(), "b": entry(offsets=(12, 20))}, b"\0" * 20, "gap"),
    "trailing bytes": ({"a": entry()}, b"\0" * 9, "describes"),
    "a name twice": (b'{"a": 1, "a": 2}', b"", "twice"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_header_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    """Every defect has a message of its own in the kit's form."""
    header, data, reason = BROKEN[case]
    with pytest.raises(WeightFileError, match=reason):
        read_header(raw_file(tmp_path / "w.safetensors", header, data))


def test_a_huge_promised_header_is_not_read(tmp_path: Path) -> None:
    """Eight bytes of 0xff would ask for 2**64 bytes."""
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(WeightFileError, match="18446744073709551615"):
        read_header(path)


def test_a_folder_in_the_file_s_place_is_told(tmp_path: Path) -> None:
    """It is no weight file; what the system refuses is told with the system's own words."""
    with pytest.raises(WeightFileError, match="it is a folder"):
        read_header(tmp_path)
    with pytest.raises(StorageError, match="errno 2"):
        read_header(tmp_path / "nothing")


def test_numbers_without_end_are_refused_at_once(tmp_path: Path) -> None:
    """A product of a million sizes of four thousand digits would take hours."""
    path = raw_file(tmp_path / "w.safetensors", {"a": entry() | {"shape": [10**4000] * 5000}}, b"\0" * 8)
    began = time.monotonic()
    with pytest.raises(WeightFileError, match="shape") as caught:
        read_header(path)
    assert time.monotonic() - began < 10
    assert len(str(caught.value)) < 1500
    with pytest.raises(WeightFileError, match="33 dimensions, and can have 32"):
        read_header(raw_file(path, {"a": entry(shape=(1,) * 31 + (2, 1))}, b"\0" * 8))
    assert 32 == len(read_header(raw_file(path, {"a": entry(shape=(1,) * 31 + (2,))}, b"\0" * 8)).tensors["a"].shape)


@given(data=st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_kit_error(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Random files are refused, or are sound."""
    path = tmp_path_factory.getbasetemp() / "random.safetensors"
    path.write_bytes(data)
    with suppress(KitError):
        read_header(path)
