"""Matrices made of slices: read in tiles of any size they are what numpy cuts from the whole tensors."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from trtllm_kit.checkpoint import rectangle
from trtllm_kit.checkpoint.matrix import Matrix, Slice, matrix_shape, tile_ranges, whole
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.values import largest_of, rows_in
from trtllm_kit.dtypes import decode_bf16
from trtllm_kit.errors import TensorError

HALF = np.float16


def spans(size: int) -> st.SearchStrategy[tuple[int, int]]:
    """Ranges within a size, none of them empty."""
    return st.integers(0, size - 1).flatmap(lambda begin: st.tuples(st.just(begin), st.integers(begin + 1, size)))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[np.ndarray], Matrix]:
    """Tensors, and a matrix of slices of one width from them."""
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    width = draw(st.integers(1, 9))
    tensors, slices = [], []
    for number in range(draw(st.integers(1, 4))):
        turned, deep = draw(st.booleans()), draw(st.booleans())
        height = draw(st.integers(1, 9))
        before, behind = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        wide = before + width + behind
        shape = (wide, height) if turned else (height, wide)
        depth = draw(st.integers(1, 3)) if deep else None
        values = random.standard_normal((*([depth] if depth else []), *shape)).astype(HALF)
        tensors.append(values)
        index = draw(st.integers(0, depth - 1)) if depth else None
        slices.append(Slice(f"t.{number}", draw(spans(height)), (before, before + width), index, turned))
    return tensors, Matrix(tuple(slices), draw(st.integers(0, 5)))


def cut_out(tensors: list[np.ndarray], matrix: Matrix) -> np.ndarray:
    """Cut the matrix from whole tensors with numpy."""
    found = []
    for part in matrix.slices:
        values = tensors[int(part.tensor.removeprefix("t."))]
        values = values if part.index is None else values[part.index]
        values = values.T if part.transposed else values
        found.append(values[slice(*part.rows), slice(*part.columns)])
    return np.concatenate([*found, np.zeros((matrix.zero_rows, matrix.columns), HALF)])


def stored(folder: Path, tensors: list[np.ndarray]) -> WeightFolder:
    """Write tensors and open them."""
    save_file({f"t.{at}": values for at, values in enumerate(tensors)}, folder / "model.safetensors")
    return open_weights(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=cuts(), tile_bytes=st.integers(1, 200), row_step=st.integers(1, 5), worth=st.sampled_from([1, 8, 1 << 20]))
def test_tiles_of_a_matrix_are_what_numpy_cuts_out(
    cut: tuple[list[np.ndarray], Matrix], tile_bytes: int, row_step: int, worth: int, tmp_path: Path
) -> None:
    """Rows, columns, turned ones, experts, rows of zeros; read row by row or in blocks; tiles of any size."""
    tensors, matrix = cut
    weights, expected = stored(tmp_path, tensors), cut_out(tensors, matrix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rectangle, "_WORTH_A_CALL", worth)
        patch.setattr(rectangle, "_BLOCK_BYTES", worth)
        ranges = list(tile_ranges(matrix, row_step, tile_bytes))
        tiles = [rows_in(weights, matrix, begin, end, "F16") for begin, end in ranges]
    assert (matrix.rows, matrix.columns) == expected.shape
    assert all((end - begin) % row_step == 0 for begin, end in ranges[:-1])
    np.testing.assert_array_equal(expected, np.concatenate(tiles))
    assert float(np.abs(expected).max()) == largest_of(weights, matrix, "BF16")


@given(shape=st.lists(st.integers(0, 5), max_size=4).map(tuple))
def test_a_whole_tensor_has_its_last_axis_as_columns(shape: tuple[int, ...]) -> None:
    """A vector is one column, a scalar one number."""
    rows, columns = matrix_shape(shape)
    assert int(np.prod(shape)) == rows * columns
    assert (shape[-1] if len(shape) > 1 else 1) == columns


def test_rows_take_the_format_that_is_asked(tmp_path: Path) -> None:
    """Float32 is rounded to 16 bit, 16 bit becomes float32 exactly, and rows of zeros are zeros of that format."""
    values = np.array([[1.0 + 2.0**-12, -3.0]], np.float32)
    weights = stored(tmp_path, [values])
    matrix = Matrix(whole(weights.tensors["t.0"]).slices, 1)
    rounded = rows_in(weights, matrix, 0, 2, "BF16")
    assert [[1.0, -3.0], [0.0, 0.0]] == decode_bf16(rounded).tolist()
    half = stored(tmp_path, [np.array([[1.5, -3.0]], HALF)])
    wide = rows_in(half, whole(half.tensors["t.0"]), 0, 1, "F32")
    assert ([[1.5, -3.0]], np.float32) == (wide.tolist(), wide.dtype)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_what_is_not_finite_is_named_by_the_tensor_it_lies_in(tmp_path: Path, value: float) -> None:
    """The second of two slices; a look for the largest magnitude finds it too."""
    bad = np.array([[0.0, value]], HALF)
    weights = stored(tmp_path, [np.ones((1, 2), HALF), bad])
    matrix = Matrix((Slice("t.0", (0, 1), (0, 2)), Slice("t.1", (0, 1), (0, 2))))
    for read in (lambda: rows_in(weights, matrix, 0, 2, "F16"), lambda: largest_of(weights, matrix, "BF16")):
        with pytest.raises(TensorError, match=r"tensor t\.1 holds"):
            read()


def test_a_slice_says_where_it_lies() -> None:
    """A whole tensor by its name alone."""
    part = Slice("a.weight", (0, 64), (128, 256))
    turned = Slice("a.experts", (0, 4), (0, 8), index=2, transposed=True)
    assert "a.weight[0:64, 128:256] + a.experts[2] turned[0:4, 0:8] + 3 rows of zeros" == str(Matrix((part, turned), 3))
    assert "a.weight" == str(Slice("a.weight", (0, 64), (0, 256), whole=True))


def test_columns_are_taken_from_bounded_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow slice of a wide tensor never has more than one block of whole rows in memory."""
    weights = stored(tmp_path, [np.arange(400 * 50, dtype=np.float32).reshape(400, 50).astype(HALF)])
    monkeypatch.setattr(rectangle, "_BLOCK_BYTES", 1000)
    seen: list[int] = []
    read = os.preadv

    def counting(file: int, into: list[memoryview], at: int) -> int:
        seen.append(into[0].nbytes)
        return read(file, into, at)

    monkeypatch.setattr(os, "preadv", counting)
    weights.rows(Slice("t.0", (0, 400), (3, 5)), 0, 400)
    assert [1000] * 40 == seen
