"""Producing tensors: which rounding a quantised tensor gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.fp8 import fp8_scale
from trtllm_kit.checkpoint.job import prepare
from trtllm_kit.checkpoint.produce import Producer
from trtllm_kit.dtypes import decode_bf16, encode_bf16, encode_e4m3
from trtllm_kit.progress import Silent


def test_fused_experts_are_rounded_once_and_linear_weights_twice(tmp_path: Path) -> None:
    """ModelOpt divides a linear's weight in BF16 before e4m3, and Llama 4's fused experts in float32."""
    source = write_tiny_model(tmp_path, "llama4")
    job = prepare(source, plan_for(source, "fp8", "fp8"), 1 << 30)
    ways_differ = 0
    weights = [step for step in job.steps if step.format != "plain" and step.part == "weight"]
    with Producer(job.weights, "BF16", {}, Silent()) as producer:
        for step in weights:
            values = to_float32(job.weights.read(step.name), "BF16")
            quotients = values / fp8_scale(float(np.abs(values).max()))
            once, twice = encode_e4m3(quotients), encode_e4m3(decode_bf16(encode_bf16(quotients)))
            found = np.concatenate([tile.ravel() for tile in producer.pieces([step])])
            assert np.array_equal((twice if len(step.shape) == 2 else once).ravel(), found), step.name
            ways_differ += not np.array_equal(once, twice)
    assert ways_differ > 1
