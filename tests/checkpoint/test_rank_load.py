"""An engine's checkpoint read back: weights that the build packs count as packed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cli import trtkit
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.rank_load import as_built

PROFILE = """\
base: h200x8-offline
name: engine
trtllm_version: "0.21.0"
toolchain: trtllm-build
quantization: {{weights: {weights}, kv_cache: bf16}}
parallelism: {{tensor: 2, replicas: 1}}
limits: {{max_seq_len: 256, max_num_tokens: 256}}
load: {{input_tokens: 64, output_tokens: 64}}
"""
NARROW = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}


def test_a_row_is_rounded_over_two_to_the_bits_less_one() -> None:
    """Scale 8 / 8 = 1: halves go away from zero, 8 has no code and becomes 7, -8 has one, and zeros stay zeros."""
    rows = np.array([[8.0, 2.5, -2.5, 0.4], [-8.0, 7.4, -0.6, 1.0], [0.0, 0.0, -0.0, 0.0]], np.float32)
    expected = [[7.0, 3.0, -3.0, 0.0], [-8.0, 7.0, -1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    assert expected == as_built(rows, 4).tolist()
    assert [[127.0, -128.0, 64.0]] == as_built(np.array([[128.0, -128.0, 64.25]], np.float32), 8).tolist()


@given(bits=st.sampled_from([4, 8]), scale=st.floats(1e-20, 1e20), seed=st.integers(0, 999))
def test_no_weight_moves_by_more_than_a_step(bits: int, scale: float, seed: int) -> None:
    """Half a step by rounding, and a whole one where the largest positive weight has no code."""
    rows = (np.random.default_rng(seed).normal(size=(4, 16)) * scale).astype(np.float32)
    step = np.abs(rows).max(axis=-1, keepdims=True) / 2 ** (bits - 1)
    assert np.all(np.abs(as_built(rows, bits) - rows) <= step * (1 + 1e-5))


@pytest.mark.parametrize(("weights", "least", "most"), [("int8_wo", 0.002, 0.04), ("int4_wo", 0.1, 0.4)])
def test_evaluate_counts_what_the_build_will_lose(tmp_path: Path, weights: str, least: float, most: float) -> None:
    """The files hold 16 bit, but the engine will not: each layer loses as much as whole numbers of 8 or 4 bits do."""
    model, out, profile = tmp_path / "model", tmp_path / "out", tmp_path / "engine.yaml"
    write_tiny_model(model, "llama", **NARROW)
    profile.write_text(PROFILE.format(weights=weights))
    made = trtkit("convert", model, "-p", profile, "--out", out)
    assert 0 == made.code, made.err
    ran = trtkit("evaluate", model, out, "--tokens", "64", "--json")
    assert all(least < layer["feed_forward_error"] < most for layer in ran.json["layers"])
    assert all(least < layer["attention_error"] < most for layer in ran.json["layers"])
