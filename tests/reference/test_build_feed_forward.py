"""How a feed-forward block is cut out of the tensors of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.reference.build_feed_forward import build_feed_forward
from trtllm_kit.reference.layer_reader import LayerReader


@pytest.mark.parametrize(
    ("family", "module", "gate", "up"),
    [
        ("gpt_oss", "mlp.experts", slice(0, None, 2), slice(1, None, 2)),
        ("llama4", "feed_forward.experts", slice(0, 32), slice(32, 64)),
    ],
)
def test_a_fused_row_is_cut_as_the_family_fuses_it(
    tmp_path: Path, family: str, module: str, gate: slice, up: slice
) -> None:
    """In gpt-oss gate and up take turns, in Llama 4 one half follows the other."""
    opened = open_checkpoint(write_tiny_model(tmp_path, family))
    model, weights = opened.model, opened.weights
    number = next(at for at, layer in enumerate(model.layers) if layer.feed_forward.kind == "experts")
    fused = weights.tensor(f"{model.prefix}layers.{number}.{module}.gate_up_proj")
    block = build_feed_forward(model, number, LayerReader(weights, frozenset())).experts[2]

    np.testing.assert_array_equal(fused[2][:, gate].T, block.gate.weight)
    np.testing.assert_array_equal(fused[2][:, up].T, block.up.weight)
