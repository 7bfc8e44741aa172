"""Writing safetensors as a stream: the real library reads what was written."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.checkpoint.writer import header_bytes, steps_behind, write_safetensors
from trtllm_kit.errors import InternalError

SHAPES = st.lists(st.lists(st.integers(0, 7), max_size=3).map(tuple), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(shapes=SHAPES, cut=st.integers(1, 9))
def test_the_safetensors_library_reads_back_what_was_streamed(
    shapes: list[tuple[int, ...]], cut: int, tmp_path: Path
) -> None:
    """Whatever shapes and tiles, values, names and hash are right, down to empty tensors and scalars."""
    random = np.random.default_rng(0)
    arrays = {f"t.{at}": random.standard_normal(shape).astype(np.float32) for at, shape in enumerate(shapes)}
    steps = [TensorStep(name, "F32", values.shape) for name, values in arrays.items()]

    def pieces() -> Iterator[np.ndarray]:
        for flat in (values.ravel() for values in arrays.values()):
            yield from (flat[at : at + cut] for at in range(0, len(flat), cut))

    path = tmp_path / "w.safetensors"
    digest = write_safetensors(path, steps, pieces())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    read = load_file(path)
    assert arrays.keys() == read.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, read[name])


def test_the_file_says_it_is_for_torch_and_its_data_is_aligned(tmp_path: Path) -> None:
    """Loaders ask for the format key; the data begins on a multiple of eight."""
    path = tmp_path / "w.safetensors"
    write_safetensors(path, [TensorStep("a", "BF16", (3,))], [np.ones(3, np.uint16)])
    with safe_open(path, "np") as file:
        assert {"format": "pt"} == file.metadata()
    assert 0 == read_header(path).data_begin % 8


def test_data_of_another_size_than_the_header_says_is_a_bug_of_the_kit(tmp_path: Path) -> None:
    """The file would be unreadable, so the run ends."""
    steps = [TensorStep("a", "BF16", (3,)), TensorStep("b", "BF16", (1,))]
    for counts, said in (([2], "a came out as 4"), ([3], "b came out as 0"), ([4], "a came out as 8")):
        with pytest.raises(InternalError, match=f"tensor {said} bytes"):
            write_safetensors(tmp_path / "w.safetensors", steps, [np.ones(count, np.uint16) for count in counts])
    with pytest.raises(InternalError, match="tensor b came out as 6 bytes"):
        write_safetensors(tmp_path / "w.safetensors", steps, [np.ones(count, np.uint16) for count in (3, 1, 2)])


def test_a_part_is_told_as_safe_only_when_the_disk_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the disk, no mark lies beyond what a finished flush had in front of it."""
    flushed, marks = [0], []

    def slow(number: int) -> None:
        size = os.fstat(number).st_size
        time.sleep(0.02)
        flushed.append(size)

    monkeypatch.setattr(os, "fdatasync", slow)
    steps = [TensorStep(f"t{at}", "F32", (1000,)) for at in range(6)]
    pieces = (np.ones(1000, np.float32) for _ in steps)

    def mark(size: int, _: str) -> None:
        marks.append((size, max(flushed)))

    write_safetensors(tmp_path / "w.safetensors", steps, pieces, mark=mark, mark_bytes=4000)
    assert marks
    assert [] == [size for size, safe in marks if size > safe]


def test_a_run_goes_on_where_a_tensor_ends_and_nowhere_else() -> None:
    """Behind the last tensor nothing is left; inside one there is no such place."""
    steps = [TensorStep("a", "F32", (3,)), TensorStep("b", "F32", (2,))]
    data = len(header_bytes(steps))
    assert steps == steps_behind(steps, 0) == steps_behind(steps, data)
    assert steps[1:] == steps_behind(steps, data + 12)
    assert () == steps_behind(steps, data + 20)
    assert [None] * 3 == [steps_behind(steps, done) for done in (data - 1, data + 4, data + 21)]
