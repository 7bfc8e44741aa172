"""Where codes and scales of a piece of a weight lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.checkpoint.formats import ENCODERS
from trtllm_kit.checkpoint.part_places import part_place


@pytest.mark.parametrize(
    ("part", "shape", "rows", "columns", "expected"),
    [
        ("weight", (128, 256), (32, 64), (0, 256), ((32, 64), (0, 256))),
        ("weight", (128, 128), (32, 64), (64, 128), ((32, 64), (32, 64))),
        ("weight", (64, 256), (32, 64), (0, 256), ((16, 32), (0, 256))),
        ("weight_scale", (128, 16), (0, 32), (128, 256), ((0, 32), (8, 16))),
        ("weight_scale", (128,), (32, 64), (0, 128), ((32, 64), (0, 1))),
        ("weight_scale", (), (32, 64), (0, 128), ((0, 1), (0, 1))),
        ("pre_quant_scale", (256,), (32, 64), (128, 256), ((128, 256), (0, 1))),
    ],
)
def test_a_part_is_cut_as_its_weight_is(
    part: str,
    shape: tuple[int, ...],
    rows: tuple[int, int],
    columns: tuple[int, int],
    expected: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    """Of 128 x 256 values: codes in one byte or two in one, scales of blocks, of rows, of all, factors of inputs."""
    assert expected == tuple(part_place(part, shape, (128, 256), rows, columns))


@given(
    form=st.sampled_from(["fp8", "fp8_rowwise", "nvfp4", "int4_wo"]),
    cuts=st.lists(st.integers(1, 7), max_size=3),
    across=st.booleans(),
)
def test_pieces_of_a_weight_have_all_of_its_parts_and_nothing_twice(form: str, cuts: list[int], across: bool) -> None:
    """Cut by rows or by columns at any multiple of a block, every entry that grows with the cut lies in one piece."""
    values = (1024, 1024)
    edges = [0, *sorted({cut * 128 for cut in cuts}), 1024]
    spans = list(pairwise(edges))
    for part in ENCODERS[form].parts(*values):
        if not part.shape or (across and len(part.shape) == 1):
            continue
        seen = np.zeros(part.shape if len(part.shape) > 1 else (*part.shape, 1), dtype=int)
        for span in spans:
            place = part_place(part.name, part.shape, values, *(((0, 1024), span) if across else (span, (0, 1024))))
            seen[slice(*place.rows), slice(*place.columns)] += 1
        assert seen.min() == seen.max() == 1
