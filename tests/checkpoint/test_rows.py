"""Parts of a stored tensor are what the whole tensor has there, in every format and layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.checkpoint.ranks import rank_plan
from tests.checkpoint.test_passed_through import FORMS
from tests.support.quantised import Stored, write_quantised, write_stored
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.stored_weights import StoredWeights
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import TensorError
from trtllm_kit.progress import Silent
from trtllm_kit.reference.layer_reader import Weights
from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import model_tensors

WIDER: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 384, "head_dim": 64, "num_hidden_layers": 1}
MADE: tuple[PartFormat, ...] = (
    "bf16", "fp8", "fp8_rowwise", "fp8_block", "int8_wo", "int4_wo", "mxfp8", "nvfp4"
)  # fmt: skip
UP = "model.layers.0.mlp.up_proj.weight"


def require_same(model: ModelSpec, weights: Weights) -> int:
    """Compare parts of every tensor with the whole; returns how many had more than one axis."""
    matrices = 0
    for name in (name for fact in model_tensors(model) for name in fact.names()):
        whole = weights.tensor(name)
        assert whole.shape == weights.shape(name)
        size = len(whole)
        for begin, end in ((0, size), (0, 1), (size - 1, size), (size // 3, size // 2 + 1), (0, min(129, size))):
            np.testing.assert_array_equal(whole[begin:end], weights.rows(name, begin, end), err_msg=name)
        if whole.ndim == STACK:
            require_same_stack(name, whole, weights)
        matrices += whole.ndim > 1
    return matrices


STACK = 3
"""Axes of a tensor that holds a matrix for each expert."""


def require_same_stack(name: str, whole: F32, weights: Weights) -> None:
    """Compare parts of the last matrix of a stack with it, also those that begin within a block of 16 rows."""
    last, size = len(whole) - 1, whole.shape[1]
    for begin, end in ((0, size), (size - 1, size), (3, 5), (15, 33)):
        found = weights.stack_rows(name, last, begin, min(end, size))
        np.testing.assert_array_equal(whole[last, begin : min(end, size)], found, err_msg=name)


@pytest.mark.parametrize("number_format", MADE)
def test_rows_of_every_format_are_those_of_the_matrix(number_format: PartFormat, tmp_path: Path) -> None:
    """Also where they begin within a byte of two codes or within a block of 128 rows."""
    source = write_tiny_model(tmp_path / "source", seed=6, **WIDER)
    convert(source, plan_for(source, number_format), tmp_path / "out", Silent())
    opened = open_checkpoint(tmp_path / "out")
    assert (number_format == "bf16") == (opened.weights.number_format(UP) == "plain")
    assert 9 == require_same(opened.model, opened.weights)


EXPERTS: dict[str, dict[str, Any]] = {
    "llama4": {"interleave_moe_layer_step": 1},
    "gpt_oss": {"layer_types": ["full_attention"]},
    "deepseek_v3": {"first_k_dense_replace": 0},
    "mixtral": {},
}
"""What makes the only layer of a family one with experts."""


@pytest.mark.parametrize("family", EXPERTS)
@pytest.mark.parametrize("number_format", ["bf16", "fp8", "nvfp4"])
def test_matrices_of_a_stack_are_parts_too(family: str, number_format: PartFormat, tmp_path: Path) -> None:
    """Experts that lie in one tensor are read one by one, or by rows of one, under the scale that all of them share."""
    source = write_tiny_model(tmp_path / "source", family, num_hidden_layers=1, **EXPERTS[family])
    convert(source, plan_for(source, number_format), tmp_path / "out", Silent())
    opened = open_checkpoint(tmp_path / "out")
    assert isinstance(opened.model.layers[0].feed_forward, Experts)
    stacks = [fact for fact in model_tensors(opened.model) if len(fact.shape) == STACK]
    assert (2 if family in ("llama4", "gpt_oss") else 0) == len(stacks)
    assert require_same(opened.model, opened.weights) > 3


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_what_others_quantised_are_parts_too(form: str, tmp_path: Path) -> None:
    """Every form that is passed through, packed in pairs of rows or of columns, turned or in blocks."""
    kind, asked = FORMS[form]
    made = write_quantised(tmp_path / "model", kind, **asked)  # type: ignore[arg-type]
    opened = open_checkpoint(made.folder)
    assert require_same(opened.model, opened.weights) > 10
    for name, values in made.values.items():
        np.testing.assert_allclose(values[1:4], opened.weights.rows(name, 1, 4), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_rowwise", "int8_wo"])
def test_rows_of_an_engine_s_checkpoint_come_from_all_ranks(weights: PartFormat, tmp_path: Path) -> None:
    """Cut by two ranks and two stages, by rows or by columns, with q, k and v in one tensor."""
    source = write_tiny_model(tmp_path / "source", seed=6, **(WIDER | {"num_hidden_layers": 2}))
    plan = rank_plan(source, tensor=2, pipeline=2, release="0.21.0", weights=weights)
    convert(source, plan, tmp_path / "out", Silent())
    opened = open_checkpoint(tmp_path / "out")
    assert 16 == require_same(opened.model, opened.weights)


def test_a_matrix_of_one_row_has_its_scale(tmp_path: Path) -> None:
    """One row and one scale for all: the scale is not cut with the row, whichever shape it is stored in."""
    codes = np.array([[0x38, 0x40, 0xB8, 0x38]], np.uint8)  # 1, 2, -1 and 1
    for shape in ((), (1,)):
        scale = Stored("F32", shape, np.float32(0.5).tobytes())
        stored = {"w.weight": Stored("F8_E4M3", (1, 4), codes.tobytes()), "w.weight_scale": scale}
        write_stored(tmp_path / "model.safetensors", stored)
        weights = StoredWeights(open_weights(tmp_path))
        assert [[0.5, 1.0, -0.5, 0.5]] == weights.rows("w.weight", 0, 1).tolist()
        assert (1, 4) == weights.shape("w.weight")


def test_rows_of_what_no_format_stores_are_refused(tmp_path: Path) -> None:
    """Codes without their scales have no values."""
    write_stored(tmp_path / "model.safetensors", {"w.weight": Stored("U8", (4, 4), bytes(16))})
    with pytest.raises(TensorError, match=r"tensor w\.weight is stored as U8"):
        StoredWeights(open_weights(tmp_path)).rows("w.weight", 0, 1)
